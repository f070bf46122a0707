"""What every program of the client table shares: the records, the checks, and the lines that it prints.

A program calls `Table.of_arguments()` and then `table.row(capability, function)` per capability; the function returns a
detail, raises `Lacking(why)` if the client has no such thing, or raises whatever went wrong.
"""

import argparse
import json
import subprocess
import threading
import time
import traceback

COUNT = 10_000
KEYS = 100
HALF = COUNT // 2
GROUP_PARTITIONS = 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# What one step may wait for, in seconds; the runner limits the whole program.
PATIENCE = 60


class Lacking(Exception):
    """The client has no such thing: the cell says n/a."""


def key_of(n):
    return f"user-{n % KEYS}"


def value_of(n):
    return f"{n}:" + f"clicked on advert {n % 7}; " * 3


def number_of(value):
    return int(value.split(":", 1)[0])


class Seen:
    """The records that consumers of one topic processed, in the order in which they did."""

    def __init__(self):
        self.lock = threading.Lock()
        self.places = set()
        self.records = []
        self.half_only = False

    def add(self, partition, offset, key, value):
        """Takes a record and says whether it counts as processed: with `half_only`, the second half of a partition does not."""
        if self.half_only and offset >= HALF // GROUP_PARTITIONS:
            return False
        text = lambda b: b.decode() if isinstance(b, (bytes, bytearray)) else b
        key, number = text(key), number_of(text(value))
        with self.lock:
            if (partition, offset) in self.places:
                raise AssertionError(f"record {partition}:{offset} was processed twice")
            if key != key_of(number):
                raise AssertionError(f"record {partition}:{offset} has key {key} and number {number}")
            if text(value) != value_of(number):
                raise AssertionError(f"record {partition}:{offset} has another value than was sent")
            self.places.add((partition, offset))
            self.records.append((partition, number))
        return True

    def __len__(self):
        return len(self.records)

    def positions(self):
        """Per partition, one past the last offset that was processed."""
        positions = {}
        with self.lock:
            for partition, offset in self.places:
                positions[partition] = max(positions.get(partition, 0), offset + 1)
        return positions

    def check_complete(self):
        numbers = [number for _, number in self.records]
        if len(set(numbers)) != COUNT or len(numbers) != COUNT:
            raise AssertionError(f"{len(numbers)} records, {len(set(numbers))} different ones, of {COUNT}")
        last, homes = {}, {}
        for partition, number in self.records:
            key = key_of(number)
            if homes.setdefault(key, partition) != partition:
                raise AssertionError(f"key {key} is in two partitions")
            if number <= last.get(key, -1):
                raise AssertionError(f"key {key}: record {number} came after {last[key]}")
            last[key] = number


def wait_for(what, condition, patience=PATIENCE):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {patience} s for {what}")
        time.sleep(0.02)


def check_lag(lags, expected):
    total = sum(lags)
    if total != expected:
        raise AssertionError(f"lag is {total} ({lags}) and should be {expected}")


class Table:
    def __init__(self, bootstrap, prefix, java_class_path=None):
        self.bootstrap, self.prefix, self.java_class_path = bootstrap, prefix, java_class_path
        self.passed = set()

    @staticmethod
    def of_arguments():
        parser = argparse.ArgumentParser()
        parser.add_argument("--bootstrap", required=True)
        parser.add_argument("--prefix", required=True)
        parser.add_argument("--java-class-path")
        args = parser.parse_args()
        return Table(args.bootstrap, args.prefix, args.java_class_path)

    def topic(self, name):
        return f"{self.prefix}-{name}"

    def row(self, capability, function, needs=None):
        """Runs one capability and prints its line. One that builds on a failed one fails with it."""
        try:
            if needs is not None and needs not in self.passed:
                raise AssertionError(f"builds on {needs}, which did not pass")
            detail = function()
            self.passed.add(capability)
            self.say(capability, "pass", detail or "")
        except Lacking as lacking:
            self.say(capability, "n/a", str(lacking))
        except BaseException as error:  # noqa: BLE001 - one cell that fails must not hide the others
            traceback.print_exc()
            self.say(capability, "fail", f"{type(error).__name__}: {error}")

    def say(self, capability, result, detail):
        print(json.dumps({"capability": capability, "result": result, "detail": detail}), flush=True)


def run(command, text="", patience=PATIENCE):
    """Runs a program to its end and returns what it printed."""
    done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=patience)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def lines():
    """All records as lines of key TAB value."""
    return "".join(f"{key_of(n)}\t{value_of(n)}\n" for n in range(COUNT))
