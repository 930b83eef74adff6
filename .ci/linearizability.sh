#!/usr/bin/env bash
# Checks histories on a DynamoDB and S3 of other people: moto, one request at a
# time, in a process of its own. It is slow, so there are few, and it does not know
# a transaction again by its token, so the answers to those are not lost.
set -euo pipefail
cd "$(dirname "$0")/.."

MOTO=5.2.1

work=$(mktemp -d)
server=
stop() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
}
trap 'stop; rm -rf "$work"' EXIT

python3 -c "import moto, sys; sys.exit(moto.__version__ != '$MOTO')" ||
    { echo "moto[server] $MOTO is not installed"; exit 1; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
python3 localstack/moto-serial/serve.py "$port" >"$work/log" 2>&1 &
server=$!
for _ in $(seq 300); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    kill -0 "$server" || { cat "$work/log"; exit 1; }
    sleep 0.1
done
AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest AWS_REGION=us-east-1 \
    go test ./localstack/linearizability -run 'History|Order' -count=1 -timeout 20m "$@"
