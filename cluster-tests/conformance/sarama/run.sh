#!/bin/bash
# Runs a command beside toxiproxy, with a proxy for each of the five brokers: kafka1 ... kafka5.
# TOXIPROXY is the program, TOXIPROXY_ADDR where it is to be asked, FIRST_PORT that of the first broker,
# WEIR_PROXY_DISTANCE how far above the broker's its proxy's port is.
set -u
proxies=$(mktemp)
proxy=
trap '[ -z "$proxy" ] || { kill "$proxy"; wait "$proxy"; } 2>/dev/null; rm -f "$proxies"' EXIT
# One that the test before has started again may not listen yet, and one that it has stopped and forgotten is started here.
for id in 1 2 3 4 5; do
    docker compose start "kafka-$id" >/dev/null 2>&1 || true
    tries=0
    until (: >"/dev/tcp/127.0.0.1/$((FIRST_PORT + id - 1))") 2>/dev/null; do
        tries=$((tries + 1))
        if [ "$tries" -gt 600 ]; then
            echo "nobody listens on port $((FIRST_PORT + id - 1))"
            exit 1
        fi
        sleep 0.1
    done
done
{
    printf '['
    for id in 1 2 3 4 5; do
        port=$((FIRST_PORT + id - 1))
        [ "$id" = 1 ] || printf ','
        printf '{"name":"kafka%s","listen":"127.0.0.1:%s","upstream":"127.0.0.1:%s","enabled":true}' \
            "$id" $((port + WEIR_PROXY_DISTANCE)) "$port"
    done
    printf ']'
} >"$proxies"
LOG_LEVEL=error "$TOXIPROXY" -host 127.0.0.1 -port "${TOXIPROXY_ADDR##*:}" -config "$proxies" &
proxy=$!
tries=0
until [ "$(curl --silent --noproxy '*' "$TOXIPROXY_ADDR/proxies" | grep -o '"kafka[1-5]"' | sort -u | wc -l)" -eq 5 ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ]; then
        echo "toxiproxy is not ready at $TOXIPROXY_ADDR"
        exit 1
    fi
    sleep 0.1
done
# One that was there before would answer too, and its proxies may lead elsewhere.
if ! kill -0 "$proxy"; then
    echo "another toxiproxy is at $TOXIPROXY_ADDR: end it"
    exit 1
fi
"$@"
