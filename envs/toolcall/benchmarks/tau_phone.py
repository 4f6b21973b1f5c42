"""The user's side of tau2-bench's telecom domain: a phone, where its user is, and what can be done.

Names, arguments and what they do to the state are tau2-bench's, oddities included (once a VPN was
broken, connecting it again gives the same bad one). The state is JSON: `device` and `surroundings`,
with the fields of user_db.toml. Methods that are not offered set a task up or look at its end.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.toolcall.benchmarks.tau_domain import merged, offered
from clawrl_gym.envs.toolcall.toolset import ToolFailure

State: TypeAlias = dict[str, Any]
"""JSON whose fields the methods below know."""

_APN: State = {
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
    "active_apn_settings": _APN,
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
"""What is installed, and what it may do, where the files do not say."""
_VPN: State = {
    "server_address": "192.168.1.1", "protocol": "OpenVPN", "server_performance": "excellent",
}  # fmt: skip
_TECHNOLOGY = {"4g_5g_preferred": "5G", "4g_only": "4G", "3g_only": "3G", "2g_only": "2G"}
"""What each preferred mode connects to."""
_MEAN_MBPS = {"2G": 0.25, "3G": 3.0, "4G": 55.0, "5G": 275.0, "none": 0.0}
_SIGNAL_FACTOR = {"poor": 0.2, "fair": 0.5, "good": 0.8, "excellent": 1.0, "none": 0.0}
_SLOW_VPN_FACTOR, _DATA_SAVER_FACTOR = 0.1, 0.2
_SPEEDS = ((1, "Very Poor"), (5, "Poor"), (25, "Fair"), (100, "Good"))
"""Mbps below which a speed is called so."""
_SIM = {
    "active": "Your SIM card is active and working.",
    "missing": "No SIM card is in the phone.",
    "locked_pin": "The SIM card is locked with a PIN code.",
    "locked_puk": "The SIM card is locked with a PUK code.",
}


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


class TauPhone:
    """One user's phone and surroundings; it writes to the state that it is given."""

    def __init__(self, state: State) -> None:
        self.device: State = state["device"]
        self.surroundings: State = state["surroundings"]
        self._vpn = dict(_VPN)

    @offered
    def check_status_bar(self) -> str:
        """Shows your phone's status bar: signal, kind of network, mobile data, Wi-Fi, airplane
        mode, VPN and battery."""
        return self._status_bar()

    @offered
    def check_network_status(self) -> str:
        """Shows how your phone is connected: airplane mode, SIM card, cellular network, signal,
        mobile data, data roaming and Wi-Fi."""
        device = self.device
        lines = [
            f"Airplane Mode: {_on(device['airplane_mode'])}",
            f"SIM Card Status: {self._sim_status()}",
            f"Cellular Connection: {device['network_connection_status']}",
            f"Cellular Signal: {device['network_signal_strength']}",
            f"Cellular Network Type: {device['network_technology_connected']}",
            f"Mobile Data Enabled: {_yes(device['data_enabled'])}",
            f"Data Roaming Enabled: {_yes(device['roaming_enabled'])}",
            f"Wi-Fi Radio: {_on(device['wifi_enabled'])}",
            f"Wi-Fi Connected: {_yes(device['wifi_connected'])}",
        ]
        return "\n".join(lines)

    @offered
    def check_network_mode_preference(self) -> str:
        """Shows the kind of network that your phone prefers."""
        return f"Network Mode Preference: {self.device['network_mode_preference']}"

    @offered
    def set_network_mode_preference(self, mode: str) -> str:
        """Sets the kind of network that your phone prefers: 4g_5g_preferred, 4g_only, 3g_only or
        2g_only."""
        if mode not in _TECHNOLOGY:
            return self._with_bar(
                f"Failed: {mode!r} is no network mode, use one of: {', '.join(_TECHNOLOGY)}"
            )
        self.device["network_mode_preference"] = mode
        self.simulate_network_search()
        return self._with_bar(f"Preferred Network Mode set to: {mode}")

    @offered
    def run_speed_test(self) -> str:
        """Measures how fast your mobile data is."""
        mbps, words = self._speed()
        if mbps is None:
            return f"Speed test failed: {words}."
        return f"Speed Test Result: {mbps:.2f} Mbps ({words})."

    @offered
    def toggle_airplane_mode(self) -> str:
        """Turns Airplane Mode on when it is off, and off when it is on. On, it ends all wireless
        connections."""
        self._toggle_airplane_mode()
        return self._with_bar(f"Airplane Mode is now {_on(self.device['airplane_mode'])}.")

    @offered
    def check_sim_status(self) -> str:
        """Shows whether your SIM card works, is missing, or is locked with a PIN or PUK."""
        return _SIM[self._sim_status()]

    @offered
    def reseat_sim_card(self) -> str:
        """Takes your SIM card out and puts it in again."""
        self.device["sim_card_missing"] = False
        self.simulate_network_search()
        return self._with_bar("SIM card re-seated successfully.")

    @offered
    def toggle_data(self) -> str:
        """Turns mobile data on when it is off, and off when it is on."""
        self._toggle("data_enabled")
        self.simulate_network_search()
        return self._with_bar(f"Mobile Data is now {_on(self.device['data_enabled'])}.")

    @offered
    def toggle_roaming(self) -> str:
        """Turns data roaming on when it is off, and off when it is on."""
        self._toggle("roaming_enabled")
        self.simulate_network_search()
        return self._with_bar(f"Data Roaming is now {_on(self.device['roaming_enabled'])}.")

    @offered
    def check_data_restriction_status(self) -> str:
        """Shows whether Data Saver mode limits your data."""
        return f"Data Saver mode is {_on(self.device['data_saver_mode'])}."

    @offered
    def toggle_data_saver_mode(self) -> str:
        """Turns Data Saver mode on when it is off, and off when it is on."""
        self._toggle("data_saver_mode")
        return self._with_bar(f"Data Saver Mode is now {_on(self.device['data_saver_mode'])}.")

    @offered
    def check_apn_settings(self) -> str:
        """Shows the settings with which your phone reaches the carrier's network: APN and MMSC."""
        settings = self.device["active_apn_settings"]
        return (
            f"Current APN Name: {settings['apn_name']}\n"
            f"MMSC URL (for picture messages): {settings['mmsc_url'] or 'Not Set'}"
        )

    @offered
    def set_apn_settings(self, apn_settings: dict) -> str:  # type: ignore[type-arg]
        """Sets the APN settings of your phone."""
        if {*apn_settings} - {*_APN} or apn_settings.get("apn_name", "internet") not in (
            "internet",
            "broken",
        ):
            raise ToolFailure(f"expected APN settings with some of: {', '.join(_APN)}")
        self.device["active_apn_settings"] = {**_APN, **apn_settings}
        self.simulate_network_search()
        name = self.device["active_apn_settings"]["apn_name"]
        return self._with_bar(f"APN settings set to: {name}")

    @offered
    def reset_apn_settings(self) -> str:
        """Has your APN settings go back to their defaults when the phone is restarted."""
        self.device["active_apn_settings"]["reset_at_reboot"] = True
        self.simulate_network_search()
        return self._with_bar("APN settings will be reset when the phone is restarted.")

    @offered
    def check_wifi_status(self) -> str:
        """Shows whether Wi-Fi is on and connected."""
        if not self.device["wifi_enabled"]:
            return "Wi-Fi is turned OFF."
        if not self.device["wifi_connected"]:
            return "Wi-Fi is ON but not connected to any network."
        return f"Wi-Fi is ON and connected to {self.device['wifi_ssid']!r}."

    @offered
    def toggle_wifi(self) -> str:
        """Turns Wi-Fi on when it is off, and off when it is on."""
        if self.device["airplane_mode"]:
            return self._with_bar("Wi-Fi cannot be changed while Airplane Mode is ON.")
        self._toggle("wifi_enabled")
        if not self.device["wifi_enabled"]:
            self._leave_wifi()
        return self._with_bar(f"Wi-Fi is now {_on(self.device['wifi_enabled'])}.")

    @offered
    def check_wifi_calling_status(self) -> str:
        """Shows whether Wi-Fi Calling is on."""
        return f"Wi-Fi Calling is turned {_on(self.device['wifi_calling_enabled'])}."

    @offered
    def toggle_wifi_calling(self) -> str:
        """Turns Wi-Fi Calling on when it is off, and off when it is on."""
        self._toggle("wifi_calling_enabled")
        return self._with_bar(f"Wi-Fi Calling is now {_on(self.device['wifi_calling_enabled'])}.")

    @offered
    def check_vpn_status(self) -> str:
        """Shows whether you use a VPN, and how well it works."""
        if not self.device["vpn_connected"]:
            setting = self.device["vpn_enabled_setting"]
            return "VPN is turned ON, but not connected." if setting else "VPN is turned OFF."
        return f"VPN is ON and connected. Details: {self.device['vpn_details']}"

    @offered
    def connect_vpn(self) -> str:
        """Connects to your VPN."""
        if self.device["vpn_connected"]:
            return "VPN already connected."
        self.device["vpn_connected"] = True
        self.device["vpn_details"] = dict(self._vpn)
        return self._with_bar("VPN connected successfully.")

    @offered
    def disconnect_vpn(self) -> str:
        """Disconnects your VPN."""
        was_connected = self.device["vpn_connected"]
        self._leave_vpn()
        return self._with_bar(
            "VPN disconnected successfully." if was_connected else "There is no VPN connection."
        )

    @offered
    def check_installed_apps(self) -> str:
        """Shows the apps on your phone."""
        return f"Installed apps: {', '.join(self.device['app_statuses'])}"

    @offered
    def check_app_status(self, app_name: str) -> str:
        """Shows how an app stands: what it may do."""
        return self._permissions(app_name)

    @offered
    def check_app_permissions(self, app_name: str) -> str:
        """Shows what an app may do."""
        return self._permissions(app_name)

    @offered
    def grant_app_permission(self, app_name: str, permission: str) -> str:
        """Gives an app a permission: sms, storage, phone or network."""
        return self._with_bar(self._set_permission(app_name, permission, True))

    @offered
    def can_send_mms(self) -> str:
        """Shows whether your messaging app can send picture messages (MMS)."""
        can = "can" if self._can_send_mms() else "cannot"
        return f"Your messaging app {can} send MMS messages."

    @offered
    def reboot_device(self) -> str:
        """Restarts your phone."""
        if self.device["active_apn_settings"]["reset_at_reboot"]:
            self.device["active_apn_settings"] = dict(_APN)
        self.simulate_network_search()
        return self._with_bar("The phone was restarted.")

    @offered
    def check_payment_request(self) -> str:
        """Shows whether you were asked to pay a bill."""
        request = self.surroundings["payment_request"]
        if request is None:
            return "No payment request has been made."
        return f"You are asked to pay {request['amount_due']} USD for bill {request['bill_id']}."

    @offered
    def make_payment(self) -> str:
        """Pays the bill that you were asked to pay."""
        request = self.surroundings["payment_request"]
        if request is None:
            return "You do not have a payment request."
        request["paid"] = True
        return f"{request['amount_due']} USD were paid for bill {request['bill_id']}."

    def set_user_info(self, name: str, phone_number: str) -> None:
        self.surroundings.update(name=name, phone_number=phone_number)

    def set_user_location(self, abroad: bool) -> None:
        self.surroundings["is_abroad"] = abroad

    def turn_airplane_mode_on(self) -> None:
        self._toggle_until("airplane_mode", True)

    def turn_airplane_mode_off(self) -> None:
        self._toggle_until("airplane_mode", False)

    def turn_data_on(self) -> None:
        self.device["data_enabled"] = True

    def turn_data_off(self) -> None:
        self._toggle_until("data_enabled", False)

    def turn_roaming_on(self) -> None:
        self._toggle_until("roaming_enabled", True)

    def turn_roaming_off(self) -> None:
        self._toggle_until("roaming_enabled", False)

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
        self.connect_vpn()
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
        technology = _TECHNOLOGY[device["network_mode_preference"]]
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

    def _toggle(self, switch: str) -> None:
        self.device[switch] = not self.device[switch]

    def _toggle_until(self, switch: str, wanted: bool) -> None:
        """At least once, as tau2-bench does it."""
        toggle = getattr(self, f"toggle_{switch.removesuffix('_enabled')}")
        toggle()
        if self.device[switch] != wanted:
            toggle()

    def _toggle_airplane_mode(self) -> None:
        turns_on = not self.device["airplane_mode"]
        self.device["airplane_mode"] = turns_on
        if turns_on or self.device["wifi_enabled"]:
            self._leave_wifi()
        if turns_on:
            self._leave_vpn()
        self.simulate_network_search()

    def _leave_wifi(self) -> None:
        self.device.update(wifi_connected=False, wifi_ssid=None, wifi_signal_strength="none")

    def _leave_vpn(self) -> None:
        if self.device["vpn_connected"]:
            self.device.update(vpn_connected=False, vpn_details=None)

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

    def _permissions(self, app_name: str) -> str:
        app = self.device["app_statuses"].get(app_name)
        if app is None:
            return f"App {app_name!r} not found on this phone."
        granted = [name for name, is_granted in app["permissions"].items() if is_granted]
        return f"App {app_name!r} has permission for: {', '.join(granted) or 'nothing'}."

    def _set_permission(self, app_name: str, permission: str, granted: bool) -> str:
        app = self.device["app_statuses"].get(app_name)
        if app is None:
            return f"Error: app {app_name!r} not found."
        if permission.lower() not in app["permissions"]:
            return f"Error: {permission!r} is none of: {', '.join(app['permissions'])}"
        app["permissions"][permission.lower()] = granted
        return f"Permission {permission.lower()!r} of app {app_name!r} is now {_on(granted)}."

    def _with_bar(self, words: str) -> str:
        return f"{words}\n{self._status_bar()}"

    def _status_bar(self) -> str:
        device = self.device
        shown = [f"Battery {device['battery_level']}%"]
        if device["vpn_connected"]:
            shown.insert(0, "VPN Connected")
        if device["wifi_enabled"] and device["wifi_connected"]:
            shown.insert(0, f"Wi-Fi {device['wifi_ssid'] or 'Enabled'}")
        if device["airplane_mode"]:
            return "Status Bar: " + " | ".join(["Airplane Mode", *shown])
        technology = device["network_technology_connected"]
        signal = device["network_signal_strength"]
        bars = ["No Signal" if signal == "none" else f"Signal {signal.capitalize()}"]
        if technology != "none":
            bars.append(technology)
        has_data = device["data_enabled"] and technology != "none"
        bars.append("Data Enabled" if has_data else "Data Disabled")
        if has_data and device["data_saver_mode"]:
            bars.append("Data Saver")
        return "Status Bar: " + " | ".join([*bars, *shown])


def _on(value: object) -> str:
    return "ON" if value else "OFF"


def _yes(value: object) -> str:
    return "Yes" if value else "No"
