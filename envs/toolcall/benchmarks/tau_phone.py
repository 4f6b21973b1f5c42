"""The phone of tau2-bench's telecom domain: its state, the network it finds, what sets a task up,
and what is looked at in the end. Its user's tools are in tau_phone_tools.py.

Names, arguments and what they do to the state are tau2-bench's, oddities included (once a VPN was
broken, connecting it again gives the same bad one). The state is JSON: `device` and `surroundings`,
with the fields of user_db.toml.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.toolcall.benchmarks.tau_domain import merged

State: TypeAlias = dict[str, Any]
"""JSON whose fields the methods below know."""

DEFAULT_APN: State = {
    "apn_name": "internet",
    "reset_at_reboot": False,
    "mms_apn": "mms",
    "mmsc_url": "http://mms.carrier.com/mms/wapenc",
    "mms_proxy": None,
    "mms_port": None,
}
_PERMISSIONS = ("sms", "storage", "phone", "network")
_DEVICE: State = {
    "sim_card_status": "active",
    "sim_card_missing": False,
    "airplane_mode": False,
    "network_signal_strength": "good",
    "network_technology_connected": "5G",
    "network_connection_status": "connected",
    "battery_level": 80,
    "data_enabled": True,
    "roaming_enabled": False,
    "network_mode_preference": "4g_5g_preferred",
    "active_apn_settings": DEFAULT_APN,
    "wifi_enabled": False,
    "wifi_connected": False,
    "wifi_ssid": None,
    "wifi_signal_strength": "none",
    "wifi_calling_enabled": False,
    "wifi_calling_mms_over_wifi": False,
    "data_saver_mode": False,
    "vpn_enabled_setting": False,
    "vpn_connected": False,
    "vpn_details": None,
    "app_statuses": {},
}
_SURROUNDINGS: State = {
    "name": None,
    "phone_number": None,
    "is_abroad": False,
    "roaming_allowed": False,
    "signal_strength": {"2G": "poor", "3G": "fair", "4G": "good", "5G": "excellent"},
    "mobile_data_usage_exceeded": False,
    "line_active": True,
    "payment_request": None,
}
_APPS = {"messaging": ("sms", "storage", "phone"), "browser": ("network", "storage")}
"""Installed apps and their permissions, where the files do not say."""
_VPN: State = {
    "server_address": "192.168.1.1", "protocol": "OpenVPN", "server_performance": "excellent",
}  # fmt: skip
TECHNOLOGIES = {"4g_5g_preferred": "5G", "4g_only": "4G", "3g_only": "3G", "2g_only": "2G"}
"""Technology that each preferred mode connects to."""
_MEAN_MBPS = {"2G": 0.25, "3G": 3.0, "4G": 55.0, "5G": 275.0, "none": 0.0}
_SIGNAL_FACTOR = {"poor": 0.2, "fair": 0.5, "good": 0.8, "excellent": 1.0, "none": 0.0}
_SLOW_VPN_FACTOR, _DATA_SAVER_FACTOR = 0.1, 0.2
_SPEEDS = ((1, "Very Poor"), (5, "Poor"), (25, "Fair"), (100, "Good"))
"""Mbps below which a speed is called so."""


def new_state(user_db: Mapping[str, Any]) -> State:
    """A phone as user_db.toml has it, with tau2-bench's defaults for what it leaves out."""
    unknown = {*user_db} - {"device", "surroundings"} or {*user_db.get("device", {})} - {*_DEVICE}
    if unknown:
        raise TaskError(f"user_db.toml: got {', '.join(sorted(unknown))}, which no phone here has")
    state = {"device": _DEVICE, "surroundings": _SURROUNDINGS}
    phone = merged(copy.deepcopy(state), user_db)
    apps = phone["device"]["app_statuses"] or {
        name: {"permissions": dict.fromkeys(granted, True)} for name, granted in _APPS.items()
    }
    phone["device"]["app_statuses"] = {name: _app(name, app) for name, app in apps.items()}
    return phone


def _app(name: str, app: State) -> State:
    granted = app.get("permissions", {})
    permissions = {one: bool(granted.get(one, False)) for one in _PERMISSIONS}
    return {"app_name": name, "permissions": permissions}


class Phone:
    """One user's phone and surroundings; it writes to the state that it is given."""

    def __init__(self, state: State) -> None:
        self.device: State = state["device"]
        self.surroundings: State = state["surroundings"]
        self._vpn = dict(_VPN)

    def set_user_info(self, name: str, phone_number: str) -> None:
        self.surroundings.update(name=name, phone_number=phone_number)

    def set_user_location(self, abroad: bool) -> None:
        self.surroundings["is_abroad"] = abroad

    def turn_airplane_mode_on(self) -> None:
        self._turn("airplane_mode", True)

    def turn_airplane_mode_off(self) -> None:
        self._turn("airplane_mode", False)

    def turn_data_on(self) -> None:
        self.device["data_enabled"] = True

    def turn_data_off(self) -> None:
        self._turn("data_enabled", False)

    def turn_roaming_on(self) -> None:
        self._turn("roaming_enabled", True)

    def turn_roaming_off(self) -> None:
        self._turn("roaming_enabled", False)

    def turn_data_saver_mode_on(self) -> None:
        self.device["data_saver_mode"] = True

    def turn_data_saver_mode_off(self) -> None:
        self.device["data_saver_mode"] = False

    def unseat_sim_card(self) -> None:
        self.device["sim_card_missing"] = True
        self.simulate_network_search()

    def lock_sim_card(self, mode: Literal["pin", "puk"]) -> None:
        self.device["sim_card_status"] = f"locked_{mode}"
        self.simulate_network_search()

    def break_apn_settings(self) -> None:
        self.device["active_apn_settings"]["apn_name"] = "broken"
        self.simulate_network_search()

    def break_apn_mms_setting(self) -> None:
        self.device["active_apn_settings"]["mmsc_url"] = None

    def break_vpn(self) -> None:
        self._connect_vpn()
        self._vpn["server_performance"] = "poor"
        self.device["vpn_details"]["server_performance"] = "poor"

    def remove_app_permission(self, app_name: str, permission: str) -> None:
        self._set_permission(app_name, permission, False)

    def set_wifi_calling(self, enabled: bool, mms_over_wifi: bool | None = None) -> None:
        self.device["wifi_calling_enabled"] = enabled
        if mms_over_wifi is not None:
            self.device["wifi_calling_mms_over_wifi"] = mms_over_wifi

    def simulate_network_search(self) -> None:
        """The network that the phone is connected to now: none with a reason not to be."""
        device = self.device
        technology = TECHNOLOGIES[device["network_mode_preference"]]
        signals = self.surroundings["signal_strength"]
        if device["network_mode_preference"] == "4g_5g_preferred" and (
            signals.get("5G", "none") == "none"
        ):
            technology = "4G"
        is_connected = (
            self._sim_status() == "active"
            and not device["airplane_mode"]
            and device["active_apn_settings"]["apn_name"] != "broken"
            and self.surroundings["line_active"]
        )
        device.update(
            network_connection_status="connected" if is_connected else "no_service",
            network_technology_connected=technology if is_connected else "none",
            network_signal_strength=signals.get(technology, "none") if is_connected else "none",
        )

    def assert_airplane_mode_status(self, expected_status: bool) -> bool:
        return bool(self.device["airplane_mode"] == expected_status)

    def assert_service_status(self, expected_status: str) -> bool:
        return bool(self.device["network_connection_status"] == expected_status)

    def assert_mobile_data_status(self, expected_status: bool) -> bool:
        return self._has_mobile_data() == expected_status

    def assert_mobile_roaming_status(self, expected_status: bool) -> bool:
        return bool(self.device["roaming_enabled"] == expected_status)

    def assert_mobile_data_saver_mode_status(self, expected_status: bool) -> bool:
        return bool(self.device["data_saver_mode"] == expected_status)

    def assert_internet_speed(
        self, expected_speed: float, expected_desc: str | None = None
    ) -> bool:
        mbps, words = self._speed()
        is_fast = (mbps or 0.0) >= expected_speed
        return is_fast and (expected_desc is None or words.lower() == expected_desc.lower())

    def assert_internet_not_excellent(self) -> bool:
        return self._speed()[1] != "Excellent"

    def assert_can_send_mms(self, expected_status: bool) -> bool:
        return self._can_send_mms() == expected_status

    def assert_mobile_data_usage_exceeded(self, expected_status: bool) -> bool:
        return bool(self.surroundings["mobile_data_usage_exceeded"] == expected_status)

    def _flip(self, switch: str) -> None:
        """Turn one of the device's switches on or off, with what follows."""
        is_on = self.device[switch] = not self.device[switch]
        if switch == "airplane_mode":
            if is_on or self.device["wifi_enabled"]:
                self._leave_wifi()
            if is_on:
                self._leave_vpn()
        if switch in ("airplane_mode", "data_enabled", "roaming_enabled"):
            self.simulate_network_search()

    def _turn(self, switch: str, wanted: bool) -> None:
        """At least one flip, as tau2-bench does it."""
        self._flip(switch)
        if self.device[switch] != wanted:
            self._flip(switch)

    def _connect_vpn(self) -> None:
        if not self.device["vpn_connected"]:
            self.device.update(vpn_connected=True, vpn_details=dict(self._vpn))

    def _restart(self) -> None:
        if self.device["active_apn_settings"]["reset_at_reboot"]:
            self.device["active_apn_settings"] = dict(DEFAULT_APN)
        self.simulate_network_search()

    def _set_permission(self, app_name: str, permission: str, granted: bool) -> str:
        """Why it cannot be set; empty when it was."""
        app = self.device["app_statuses"].get(app_name)
        if app is None:
            return f"app {app_name!r} not found"
        if permission.lower() not in app["permissions"]:
            return f"{permission!r} is none of: {', '.join(app['permissions'])}"
        app["permissions"][permission.lower()] = granted
        return ""

    def _sim_status(self) -> str:
        return "missing" if self.device["sim_card_missing"] else str(self.device["sim_card_status"])

    def _has_mobile_data(self) -> bool:
        device, surroundings = self.device, self.surroundings
        may_roam = device["roaming_enabled"] and surroundings["roaming_allowed"]
        return bool(
            not device["airplane_mode"]
            and device["network_signal_strength"] != "none"
            and device["network_connection_status"] != "no_service"
            and (may_roam or not surroundings["is_abroad"])
            and device["data_enabled"]
            and not surroundings["mobile_data_usage_exceeded"]
        )

    def _speed(self) -> tuple[float | None, str]:
        """Mbps, and what such a speed is called."""
        if not self._has_mobile_data():
            return None, "No Connection"
        device = self.device
        vpn = device["vpn_details"] if device["vpn_connected"] else None
        factor = _SLOW_VPN_FACTOR if vpn and vpn["server_performance"] == "poor" else 1.0
        if device["data_saver_mode"]:
            factor *= _DATA_SAVER_FACTOR
        signal = _SIGNAL_FACTOR[device["network_signal_strength"]]
        mbps = round(_MEAN_MBPS[device["network_technology_connected"]] * signal * factor, 2)
        return mbps, next((words for below, words in _SPEEDS if mbps < below), "Excellent")

    def _can_send_mms(self) -> bool:
        device = self.device
        app = device["app_statuses"].get("messaging")
        return bool(
            self._has_mobile_data()
            and device["network_technology_connected"] != "2G"
            and not (device["wifi_calling_enabled"] and device["wifi_calling_mms_over_wifi"])
            and device["active_apn_settings"]["mmsc_url"] is not None
            and app is not None
            and app["permissions"]["storage"]
            and app["permissions"]["sms"]
        )

    def _leave_wifi(self) -> None:
        self.device.update(wifi_connected=False, wifi_ssid=None, wifi_signal_strength="none")

    def _leave_vpn(self) -> None:
        if self.device["vpn_connected"]:
            self.device.update(vpn_connected=False, vpn_details=None)
