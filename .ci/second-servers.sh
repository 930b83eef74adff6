#!/usr/bin/env bash
# Runs the conformance suites of core/coretest on servers of other people: on moto,
# one request at a time, and MiniStack those of both adapters, on versitygw that of
# the archive queue. On the first two a hub is started too, after its doctor passed
# them. All run as processes; versitygw is built as its own module and MiniStack
# installed into an environment of its own, so that none of their dependencies are
# ours.
#
#   .ci/second-servers.sh [moto] [ministack] [versitygw]     all without a name
#
# What fails by the server's own fault stands in localstack/servers/NAME.fails, with
# the reason; the run fails when that is not exactly what fails.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/ministack

VERSITYGW=v1.8.0
MOTO=5.2.1
tools=${DRAWBRIDGE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/drawbridge-tools}
gateway=$tools/versitygw-$VERSITYGW
[ $# -gt 0 ] || set -- moto ministack versitygw

queue='Conforms|Serves|Permission|Reindex|ByteForByte|SlowWriter|CutShort|Removed|IndexHolds'
# The suites of the DynamoDB adapter, without what is about many items, many callers
# or every interleaving: these servers answer some hundred requests a second.
table='Conform'
bulk=$(printf '.*/.*/%s|' \
    a_sweep_is_bounded a_redrive_by_filter_is_bounded bounded_steps a_deep_backlog 1,000_followers \
    newest_first,_by_page pages_of_every_size settle_every_message_once eight_drains 16_redrives of_fifty \
    a_hundred_answers 64_first in_all_24_orders in_every_interleaving stopped_anywhere many_orphaned \
    nor_does_it_take_a_second_step each_message_for_a_role_is_drained_once)
bulk=${bulk%|}

work=$(mktemp -d)
server=
hub=
stop() {
    for process in $hub $server; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    server= hub=
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

# at PORT COMMAND...: with the server as AWS. The process of a command in the
# background is the command's own.
at() {
    local port=$1
    shift
    exec env AWS_ENDPOINT_URL="http://127.0.0.1:$port" AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testtest AWS_REGION=us-east-1 "$@"
}

# conform NAME PORT PACKAGE GO-TEST-FLAGS...: passes when exactly the cases in the
# server's list fail.
conform() {
    local name=$1 port=$2 package=$3 known=localstack/servers/$1.fails failed
    shift 3
    (at "$port" go test "$package" -count=1 -timeout 20m -v "$@") >"$work/out" 2>&1 || true
    grep -qE '^(ok|FAIL)' "$work/out" || { tail -n 50 "$work/out"; exit 1; }
    # Of the cases that failed, those that hold no other.
    failed=$(sed -nE 's/^ *--- FAIL: (.*) \([0-9.]+s\)$/\1/p' "$work/out" | sort |
        awk 'NR > 1 && index($0, last "/") != 1 { print last } { last = $0 } END { if (NR) print last }')
    if ! diff <(sed -nE "s|^$package ||p" "$known" | sort) <(printf '%s' "$failed${failed:+
}"); then
        echo "$name, $package: other cases fail (>) than $known says (<)"
        grep -vE '^ *(=== |--- PASS)|^SDK ' "$work/out" | tail -n 60
        exit 1
    fi
    if grep -q '^panic:' "$work/out"; then tail -n 50 "$work/out"; exit 1; fi
    echo "   $package: $(grep -cE '^ *--- PASS' "$work/out") passed, $(printf '%s' "$failed" | grep -c . || true) failed as known"
}

# probe NAME PORT: passes when exactly the checks in the server's list fail.
probe() {
    (cd localstack/awsprobe && go build -o "$work/awsprobe" .)
    "$work/awsprobe" -endpoint "http://127.0.0.1:$2" -target "$1" -suites ddb,ddbrace,s3,s3race -rounds 20 >"$work/out" 2>&1 || true
    if ! diff <(sed -n 's/^awsprobe //p' "localstack/servers/$1.fails" | sort) <(sed -nE 's/^FAIL\t([^\t]*)\t.*/\1/p' "$work/out" | sort); then
        echo "$1, awsprobe: other checks fail (>) than localstack/servers/$1.fails says (<)"
        exit 1
    fi
    tail -n 1 "$work/out"
}

# serves NAME PORT PYTHON: the init script of localstack/compose.yaml makes the
# state, twice, a hub keeps its state there, and a message goes through it.
serves() {
    local http token
    for _ in once again; do
        (at "$2" TEMPLATE=template.yaml READY_FILE="$work/ready" "$3" localstack/init/state.py) >"$work/out" 2>&1 ||
            { cat "$work/out"; exit 1; }
    done
    [ -e "$work/ready" ]
    http=$(free_port)
    go build -o "$work/drawbridge" ./localstack
    at "$2" "$work/drawbridge" -http "127.0.0.1:$http" -data "$work/hub-$1" -template template.yaml >"$work/hub.out" 2>&1 &
    hub=$!
    for _ in $(seq 600); do
        grep -q '^Ctrl-C' "$work/hub.out" && break
        kill -0 "$hub" 2>/dev/null || { cat "$work/hub.out"; exit 1; }
        sleep 0.1
    done
    ! grep '^  made ' "$work/hub.out"
    token=$(cat "$work/hub-$1/token")
    call() {
        curl -sS --max-time 60 "http://127.0.0.1:$http/bridge/$1" -H "Authorization: Bearer $token" -d "$2"
    }
    call register '{"agent_id":"a","cli":"claude"}' | grep -q '"presence_generation":1'
    call publish '{"from":"b","to":"a","topic":"t","payload":"through"}' | grep -q '"fanout_count":1'
    call context '{"agent_id":"a"}' | grep -q '"payload":"through"'
    call context '{"agent_id":"a"}' | grep -q '"messages":\[\]'
    echo "   compose's init script works on $1, the doctor passes it, and a hub on it registers, publishes and drains"
    kill "$hub"
    wait "$hub" || true
    hub=
}

for name in "$@"; do
    port=$(free_port)
    case $name in
    moto)
        echo "-- moto $MOTO, one request at a time"
        python3 -c "import moto, sys; sys.exit(moto.__version__ != '$MOTO')" ||
            { echo "moto[server] $MOTO is not installed"; exit 1; }
        python3 localstack/moto-serial/serve.py "$port" >"$work/log" 2>&1 &
        server=$!
        answers "$port"
        serves moto "$port" python3
        conform moto "$port" ./s3queue -run "$queue"
        conform moto "$port" ./ddb -run "$table" -skip "$bulk"
        ;;
    ministack)
        echo "-- MiniStack $MINISTACK"
        install_ministack
        (serve_ministack "$port" "$work") >"$work/log" 2>&1 &
        server=$!
        answers "$port"
        serves ministack "$port" "$ministack_home/bin/python"
        probe ministack "$port"
        conform ministack "$port" ./s3queue -run "$queue"
        conform ministack "$port" ./ddb -run "$table" -skip "$bulk"
        ;;
    versitygw)
        echo "-- versitygw $VERSITYGW"
        [ -x "$gateway/versitygw" ] ||
            GOBIN=$gateway go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW"
        mkdir -p "$work/objects" "$work/versions"
        ROOT_ACCESS_KEY=test ROOT_SECRET_KEY=testtest "$gateway/versitygw" --quiet --port "127.0.0.1:$port" \
            posix --versioning-dir "$work/versions" "$work/objects" >"$work/log" 2>&1 &
        server=$!
        answers "$port"
        conform versitygw "$port" ./s3queue -run "$queue"
        ;;
    *)
        echo "no server is called $name"
        exit 2
        ;;
    esac
    stop
done
