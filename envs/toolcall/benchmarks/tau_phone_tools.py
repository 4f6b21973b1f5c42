"""Phone tools of the user in tau2-bench's telecom domain.

Names, arguments and what they do are tau2-bench's; results are in our words, with the same figures.
"""

from __future__ import annotations

from clawrl_gym.envs.toolcall.benchmarks.tau_domain import offered
from clawrl_gym.envs.toolcall.benchmarks.tau_phone import DEFAULT_APN, TECHNOLOGIES, Phone
from clawrl_gym.envs.toolcall.toolset import ToolFailure

_SIM = {
    "active": "Your SIM card is active and working.",
    "missing": "No SIM card is in the phone.",
    "locked_pin": "The SIM card is locked with a PIN code.",
    "locked_puk": "The SIM card is locked with a PUK code.",
}


class TauPhone(Phone):
    """A phone in its user's hands."""

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
        if mode not in TECHNOLOGIES:
            return self._with_bar(
                f"Failed: {mode!r} is no network mode, use one of: {', '.join(TECHNOLOGIES)}"
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
        self._flip("airplane_mode")
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
        self._flip("data_enabled")
        return self._with_bar(f"Mobile Data is now {_on(self.device['data_enabled'])}.")

    @offered
    def toggle_roaming(self) -> str:
        """Turns data roaming on when it is off, and off when it is on."""
        self._flip("roaming_enabled")
        return self._with_bar(f"Data Roaming is now {_on(self.device['roaming_enabled'])}.")

    @offered
    def check_data_restriction_status(self) -> str:
        """Shows whether Data Saver mode limits your data."""
        return f"Data Saver mode is {_on(self.device['data_saver_mode'])}."

    @offered
    def toggle_data_saver_mode(self) -> str:
        """Turns Data Saver mode on when it is off, and off when it is on."""
        self._flip("data_saver_mode")
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
        if {*apn_settings} - {*DEFAULT_APN} or apn_settings.get("apn_name", "internet") not in (
            "internet",
            "broken",
        ):
            raise ToolFailure(f"expected APN settings with some of: {', '.join(DEFAULT_APN)}")
        self.device["active_apn_settings"] = {**DEFAULT_APN, **apn_settings}
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
        self._flip("wifi_enabled")
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
        self._flip("wifi_calling_enabled")
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
        self._connect_vpn()
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
        failed = self._set_permission(app_name, permission, granted=True)
        return self._with_bar(
            f"Error: {failed}." if failed else f"{app_name!r} may use {permission.lower()!r} now."
        )

    @offered
    def can_send_mms(self) -> str:
        """Shows whether your messaging app can send picture messages (MMS)."""
        can = "can" if self._can_send_mms() else "cannot"
        return f"Your messaging app {can} send MMS messages."

    @offered
    def reboot_device(self) -> str:
        """Restarts your phone."""
        self._restart()
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

    def _permissions(self, app_name: str) -> str:
        app = self.device["app_statuses"].get(app_name)
        if app is None:
            return f"App {app_name!r} not found on this phone."
        granted = [name for name, is_granted in app["permissions"].items() if is_granted]
        return f"App {app_name!r} has permission for: {', '.join(granted) or 'nothing'}."

    def _with_bar(self, words: str) -> str:
        return f"{words}\n{self._status_bar()}"

    def _status_bar(self) -> str:
        device = self.device
        others = [f"Battery {device['battery_level']}%"]
        if device["vpn_connected"]:
            others.insert(0, "VPN Connected")
        if device["wifi_enabled"] and device["wifi_connected"]:
            others.insert(0, f"Wi-Fi {device['wifi_ssid'] or 'Enabled'}")
        if device["airplane_mode"]:
            return "Status Bar: " + " | ".join(["Airplane Mode", *others])
        technology = device["network_technology_connected"]
        signal = device["network_signal_strength"]
        bars = ["No Signal" if signal == "none" else f"Signal {signal.capitalize()}"]
        if technology != "none":
            bars.append(technology)
        has_data = device["data_enabled"] and technology != "none"
        bars.append("Data Enabled" if has_data else "Data Disabled")
        if has_data and device["data_saver_mode"]:
            bars.append("Data Saver")
        return "Status Bar: " + " | ".join([*bars, *others])


def _on(value: object) -> str:
    return "ON" if value else "OFF"


def _yes(value: object) -> str:
    return "Yes" if value else "No"
