"""The tools of tau2-bench's airline over its data: flights, users and reservations.

Names, arguments and what they do to the data are tau2-bench's, oddities included: a cancelled
reservation gives no seats back, a change of flights takes none.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.toolcall.benchmarks.tau_domain import Table, call_offered, offered, tools_of
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure
from clawrl_gym.envs.toolcall.toolsets.calculator import calculate

NAME = "tau2_airline"
TABLES = ("flights", "users", "reservations")

Cabin = Literal["business", "economy", "basic_economy"]
_NOW = "2024-05-15T15:00:00"
_NEW_RESERVATIONS = ("HATHAT", "HATHAU", "HATHAV")
_NEW_CERTIFICATES = ("certificate_3221322", "certificate_3221323", "certificate_3221324")
_BAG_DOLLARS = 50
_INSURANCE_DOLLARS = 30
_AIRPORTS = {
    "SFO": "San Francisco", "JFK": "New York", "LAX": "Los Angeles", "ORD": "Chicago",
    "DFW": "Dallas", "DEN": "Denver", "SEA": "Seattle", "ATL": "Atlanta", "MIA": "Miami",
    "BOS": "Boston", "PHX": "Phoenix", "IAH": "Houston", "LAS": "Las Vegas", "MCO": "Orlando",
    "EWR": "Newark", "CLT": "Charlotte", "MSP": "Minneapolis", "DTW": "Detroit",
    "PHL": "Philadelphia", "LGA": "LaGuardia",
}  # fmt: skip


class FlightOnDay(TypedDict):
    flight_number: str
    date: str


class Passenger(TypedDict):
    first_name: str
    last_name: str
    dob: str


class Payment(TypedDict):
    payment_id: str
    amount: int


class BookedFlight(FlightOnDay):
    origin: str
    destination: str
    price: int


class FlightDay(TypedDict):
    status: str
    available_seats: NotRequired[dict[str, int]]
    prices: NotRequired[dict[str, int]]


class Flight(TypedDict):
    flight_number: str
    origin: str
    destination: str
    scheduled_departure_time_est: str
    scheduled_arrival_time_est: str
    dates: dict[str, FlightDay]


class PaymentMethod(TypedDict):
    source: str
    id: str
    amount: NotRequired[float]
    """Amount of a gift card or a certificate."""


class User(TypedDict):
    payment_methods: dict[str, PaymentMethod]
    reservations: list[str]


class Reservation(TypedDict):
    reservation_id: str
    user_id: str
    origin: str
    destination: str
    flight_type: str
    cabin: str
    flights: list[BookedFlight]
    passengers: list[Passenger]
    payment_history: list[Payment]
    created_at: str
    total_baggages: int
    nonfree_baggages: int
    insurance: str
    status: NotRequired[str | None]


class TauAirline:
    """tau2-bench's airline in one episode."""

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self._flights: Table[Flight] = Table("flight", tables["flights"])
        self._users: Table[User] = Table("user", tables["users"])
        self._reservations: Table[Reservation] = Table("reservation", tables["reservations"])

    def tools(self) -> list[Tool]:
        return list(tools_of(TauAirline))

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        return call_offered(self, name, arguments)

    def state(self) -> dict[str, object]:
        """The rows that are other than at the start, by table and id."""
        return {
            "flights": self._flights.changes(),
            "users": self._users.changes(),
            "reservations": self._reservations.changes(),
        }

    def close(self) -> None:
        """Nothing is open."""

    @offered
    def book_reservation(
        self,
        user_id: str,
        origin: str,
        destination: str,
        flight_type: Literal["round_trip", "one_way"],
        cabin: Cabin,
        flights: list[FlightOnDay],
        passengers: list[Passenger],
        payment_methods: list[Payment],
        total_baggages: int,
        nonfree_baggages: int,
        insurance: Literal["yes", "no"],
    ) -> Reservation:
        """Book flights for passengers; the payments must add up to the price of the tickets, bags
        that are not free and the insurance."""
        user = self._users.row(user_id)
        reservation_id = _first_free(_NEW_RESERVATIONS, self._reservations, "reservations")
        booked = [self._seats(flight, cabin, len(passengers)) for flight in flights]
        price = sum(flight["price"] for flight in booked) * len(passengers)
        price += _INSURANCE_DOLLARS * len(passengers) * (insurance == "yes")
        price += _BAG_DOLLARS * nonfree_baggages
        _check_payments(user, payment_methods, price)
        user = self._users.edit(user_id)
        _pay(user, payment_methods)
        for flight in flights:
            day = self._flights.edit(flight["flight_number"])["dates"][flight["date"]]
            day["available_seats"][cabin] -= len(passengers)
        reservation: Reservation = {
            "reservation_id": reservation_id,
            "user_id": user_id,
            "origin": origin,
            "destination": destination,
            "flight_type": flight_type,
            "cabin": cabin,
            "flights": booked,
            "passengers": [_passenger(one) for one in passengers],
            "payment_history": [_payment(**one) for one in payment_methods],
            "created_at": _NOW,
            "total_baggages": total_baggages,
            "nonfree_baggages": nonfree_baggages,
            "insurance": insurance,
            "status": None,
        }  # fmt: skip
        self._reservations.add(reservation_id, reservation)
        user["reservations"].append(reservation_id)
        return reservation

    @offered
    def calculate(self, expression: str) -> str:
        """The value of an arithmetic expression."""
        return calculate(expression)

    @offered
    def cancel_reservation(self, reservation_id: str) -> Reservation:
        """Cancel a whole reservation; what was paid is given back."""
        self._reservations.row(reservation_id)
        reservation = self._reservations.edit(reservation_id)
        payments = reservation["payment_history"]
        payments += [_payment(one["payment_id"], -one["amount"]) for one in payments]
        reservation["status"] = "cancelled"
        return reservation

    @offered
    def get_reservation_details(self, reservation_id: str) -> Reservation:
        """All about a reservation."""
        return self._reservations.row(reservation_id)

    @offered
    def get_user_details(self, user_id: str) -> User:
        """All about a user, with reservations and payment methods."""
        return self._users.row(user_id)

    @offered
    def list_all_airports(self) -> list[dict[str, str]]:
        """All airports: codes and cities."""
        return [{"iata": code, "city": city} for code, city in _AIRPORTS.items()]

    @offered
    def search_direct_flight(
        self, origin: str, destination: str, date: str
    ) -> list[dict[str, object]]:
        """Flights between two airports on a day (YYYY-MM-DD) that have seats to sell."""
        return self._direct(date, origin, destination)

    @offered
    def search_onestop_flight(
        self, origin: str, destination: str, date: str
    ) -> list[list[dict[str, object]]]:
        """Pairs of flights with one stop between two airports on a day (YYYY-MM-DD)."""
        pairs = []
        for first in self._direct(date, origin, None):
            arrival = str(first["scheduled_arrival_time_est"])
            day = _next_day(date) if "+1" in arrival else date
            for second in self._direct(day, str(first["destination"]), destination, arrival):
                pairs.append([{**first, "date": date}, {**second, "date": day}])
        return pairs

    @offered
    def send_certificate(self, user_id: str, amount: int) -> str:
        """Give a user a certificate of so many dollars."""
        methods = self._users.row(user_id)["payment_methods"]
        certificate = _first_free(_NEW_CERTIFICATES, methods, "certificates")
        self._users.edit(user_id)["payment_methods"][certificate] = {
            "source": "certificate", "id": certificate, "amount": amount,
        }  # fmt: skip
        return f"Certificate {certificate} of {amount} added to user {user_id}"

    @offered
    def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the user over to a colleague: when the user asks for one, or when neither the
        policy nor the tools let you help."""
        return "Transfer successful"

    @offered
    def update_reservation_baggages(
        self, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> Reservation:
        """Set how many bags a reservation has; further bags that are not free are paid for."""
        former = self._reservations.row(reservation_id)["nonfree_baggages"]
        dollars = _BAG_DOLLARS * max(0, nonfree_baggages - former)
        reservation = self._charged(reservation_id, payment_id, dollars)
        reservation["total_baggages"] = total_baggages
        reservation["nonfree_baggages"] = nonfree_baggages
        return reservation

    @offered
    def update_reservation_flights(
        self, reservation_id: str, cabin: Cabin, flights: list[FlightOnDay], payment_id: str
    ) -> Reservation:
        """Set cabin and flights of a reservation, those that stay included; the difference in
        price is paid or given back."""
        former = self._reservations.row(reservation_id)
        passengers = len(former["passengers"])
        booked = [
            _kept(former, cabin, flight) or self._seats(flight, cabin, passengers)
            for flight in flights
        ]
        dollars = sum(flight["price"] for flight in booked) * passengers
        dollars -= sum(flight["price"] for flight in former["flights"]) * passengers
        reservation = self._charged(reservation_id, payment_id, dollars)
        reservation["flights"] = copy.deepcopy(booked)
        reservation["cabin"] = cabin
        return reservation

    @offered
    def update_reservation_passengers(
        self, reservation_id: str, passengers: list[Passenger]
    ) -> Reservation:
        """Set the passengers of a reservation: as many as there were."""
        if len(passengers) != len(self._reservations.row(reservation_id)["passengers"]):
            raise ToolFailure("the number of passengers does not match")
        reservation = self._reservations.edit(reservation_id)
        reservation["passengers"] = [_passenger(one) for one in passengers]
        return reservation

    @offered
    def get_flight_status(self, flight_number: str, date: str) -> str:
        """How a flight stands on a day (YYYY-MM-DD)."""
        return self._day(flight_number, date)["status"]

    def _day(self, flight_number: str, date: str) -> FlightDay:
        dates = self._flights.row(flight_number)["dates"]
        if date not in dates:
            raise ToolFailure(f"flight {flight_number} not found on date {date[:40]}")
        return dates[date]

    def _seats(self, flight: FlightOnDay, cabin: str, passengers: int) -> BookedFlight:
        """A flight for `passengers`. Raises ToolFailure when it has no seats for them."""
        number, date = flight["flight_number"], flight["date"]
        day = self._day(number, date)
        if day["status"] != "available":
            raise ToolFailure(f"flight {number} not available on date {date}")
        if day["available_seats"][cabin] < passengers:
            raise ToolFailure(f"not enough seats on flight {number}")
        row = self._flights.row(number)
        return {
            "origin": row["origin"],
            "destination": row["destination"],
            "flight_number": number,
            "date": date,
            "price": day["prices"][cabin],
        }

    def _direct(
        self, date: str, origin: str, destination: str | None, leaves_after: str = ""
    ) -> list[dict[str, object]]:
        direct: list[dict[str, object]] = []
        for number in self._flights.ids():
            flight = self._flights.row(number)
            day = flight["dates"].get(date)
            if (
                flight["origin"] == origin
                and destination in (None, flight["destination"])
                and day is not None
                and day["status"] == "available"
                and flight["scheduled_departure_time_est"] >= leaves_after
            ):
                direct.append({k: v for k, v in flight.items() if k != "dates"} | dict(day))
        return direct

    def _charged(self, reservation_id: str, payment_id: str, dollars: int) -> Reservation:
        """The reservation, to be written, after so much was paid for it or given back."""
        user_id = self._reservations.row(reservation_id)["user_id"]
        methods = self._users.row(user_id)["payment_methods"]
        if payment_id not in methods:
            raise ToolFailure("payment method not found")
        source = methods[payment_id]["source"]
        if source == "certificate":
            raise ToolFailure("a certificate cannot be used to update a reservation")
        if source == "gift_card":
            if methods[payment_id]["amount"] < dollars:
                raise ToolFailure("the balance of the gift card is too low")
            self._users.edit(user_id)["payment_methods"][payment_id]["amount"] -= dollars
        reservation = self._reservations.edit(reservation_id)
        if dollars:
            reservation["payment_history"].append(_payment(payment_id, dollars))
        return reservation


def make(task: ToolTask, context: ToolContext) -> TauAirline:
    """The airline over the task's data. Raises TaskError when there is none."""
    tables = task.state.get(NAME, {})
    if set(tables) != set(TABLES):
        raise TaskError(f"task {task.id!r}: expected its state to have tau2-bench's airline data")
    return TauAirline(tables)


def _first_free(ids: Sequence[str], taken: Any, what: str) -> str:
    """The first of the ids that a task's new rows get."""
    free = [one for one in ids if one not in taken]
    if not free:
        raise ToolFailure(f"too many {what}")
    return free[0]


def _check_payments(user: User, payments: Sequence[Payment], price: int) -> None:
    methods = user["payment_methods"]
    for payment in payments:
        method = methods.get(payment["payment_id"])
        if method is None:
            raise ToolFailure(f"payment method {payment['payment_id'][:40]} not found")
        if method["source"] != "credit_card" and method["amount"] < payment["amount"]:
            raise ToolFailure(f"not enough balance in payment method {payment['payment_id']}")
    paid = sum(payment["amount"] for payment in payments)
    if paid != price:
        raise ToolFailure(f"the payments do not add up: the price is {price}, paid is {paid}")


def _pay(user: User, payments: Sequence[Payment]) -> None:
    """A certificate is used up whole."""
    methods = user["payment_methods"]
    for payment in payments:
        method = methods.get(payment["payment_id"])
        if method is None:
            raise ToolFailure("a certificate can be used once only")
        if method["source"] == "gift_card":
            method["amount"] -= payment["amount"]
        elif method["source"] == "certificate":
            del methods[payment["payment_id"]]


def _kept(former: Reservation, cabin: str, flight: FlightOnDay) -> BookedFlight | None:
    """The flight as it is booked already, at its price then."""
    if cabin != former["cabin"]:
        return None
    wanted = (flight["flight_number"], flight["date"])
    return next(
        (one for one in former["flights"] if (one["flight_number"], one["date"]) == wanted), None
    )


def _next_day(date: str) -> str:
    return f"2024-05-{int(date[-2:]) + 1}"


def _passenger(one: Passenger) -> Passenger:
    return {"first_name": one["first_name"], "last_name": one["last_name"], "dob": one["dob"]}


def _payment(payment_id: str, amount: int) -> Payment:
    return {"payment_id": payment_id, "amount": amount}
