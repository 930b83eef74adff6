#!/usr/bin/env bash
# Runs the archive queue's conformance suite on S3 servers of other people: moto,
# one request at a time, and versitygw. Both run as processes; versitygw is built
# as its own module, so that none of its dependencies are ours.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSITYGW=v1.8.0
MOTO=5.2.1
tools=${DRAWBRIDGE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/drawbridge-tools}
gateway=$tools/versitygw-$VERSITYGW
suite='Conforms|Serves|Permission|Reindex|ByteForByte|SlowWriter|CutShort|Removed|IndexHolds'

work=$(mktemp -d)
server=
stop() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    server=
}
trap 'stop; rm -rf "$work"' EXIT

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# answers PORT: until something listens there.
answers() {
    for _ in $(seq 300); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        kill -0 "$server" || break
        sleep 0.1
    done
    echo "the server did not start"
    cat "$work/log"
    exit 1
}

conform() { # conform NAME PORT GO-TEST-FLAGS...
    local name=$1 port=$2
    shift 2
    echo "-- $name at port $port"
    AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest AWS_REGION=us-east-1 \
        go test ./s3queue -run "$suite" -count=1 -timeout 20m "$@"
}

python3 -c "import moto, sys; sys.exit(moto.__version__ != '$MOTO')" ||
    { echo "moto[server] $MOTO is not installed"; exit 1; }
port=$(free_port)
python3 localstack/moto-serial/serve.py "$port" >"$work/log" 2>&1 &
server=$!
answers "$port"
conform "moto $MOTO, one request at a time" "$port"
stop

[ -x "$gateway/versitygw" ] ||
    GOBIN=$gateway go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW"
mkdir -p "$work/objects" "$work/versions"
port=$(free_port)
ROOT_ACCESS_KEY=test ROOT_SECRET_KEY=testtest "$gateway/versitygw" --quiet --port "127.0.0.1:$port" \
    posix --versioning-dir "$work/versions" "$work/objects" >"$work/log" 2>&1 &
server=$!
answers "$port"
# In a versioned bucket it takes a delete marker for an object and refuses
# If-None-Match: *, which AWS does not: a removed job cannot come back there.
conform "versitygw $VERSITYGW" "$port" -skip 'Versioned.*/Operator/remove_takes'
stop
