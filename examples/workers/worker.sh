#!/bin/sh
# A worker in shell, by docs/worker-protocol.md, one task at a time. It needs redis-cli or valkey-cli, setsid and timeout
# (coreutils, util-linux), and curl if starts are to be confirmed. Run it:
#     DULY_REDIS_URL=redis://127.0.0.1:6379/0 DULY_QUEUE=default DULY_URL=http://127.0.0.1:8080 sh worker.sh
set -u

# A handler reads the payload and writes the result, both JSON. Another exit code than 0 is a failure, with what it wrote
# to standard error as the message; with 100 the task is not tried again. TASK_ID, TOKEN and ATTEMPT are set.
handle() {
    case $1 in
    email.send) sed 's/^{"to": *\("[^"]*"\).*/{"sent_to": \1}/' ;;
    # What `duly conformance -- sh worker.sh` asks of a worker:
    conformance.echo) cat ;;
    conformance.sleep)
        seconds=$(sed -n 's/^{"seconds": *\([0-9.]*\)}$/\1/p')
        [ -n "$seconds" ] || { echo "there are no seconds in the payload" >&2; return 100; }
        sleep "$seconds"
        ;;
    conformance.fail) cat >&2; return 1 ;;
    *) return "$unknown" ;;
    esac
}
unknown=90 # exit code for a type without a handler

if [ "${1:-}" = --handle ]; then # this program started by itself, in a process group of its own: see attempt
    handle "$2" <"$3/payload" >"$3/out" 2>"$3/err"
    echo $? >"$3/code.new"
    mv "$3/code.new" "$3/code"
    exit
fi

url=${DULY_REDIS_URL:-redis://127.0.0.1:6379/0} queue=${DULY_QUEUE:-default} api=${DULY_URL:-}
user=''
decode() { # what %3A and its like in a URL stand for
    text=$1
    while case $text in *%??*) ;; *) false ;; esac; do
        printf %s "${text%%\%*}"
        text=${text#*%}
        code=${text%"${text#??}"}
        printf "\\$(printf %03o "0x$code")"
        text=${text#??}
    done
    printf %s "$text"
}
case $url in
*://*@*) # not as an argument of redis-cli: everybody sees those in the list of processes
    name=${url#*://}
    name=${name%@*}
    user=$(decode "${name%%:*}")
    REDISCLI_AUTH=$(decode "${name#*:}")
    export REDISCLI_AUTH
    url=${url%%://*}://${url##*@}
    ;;
esac
drain_s=30
host=$(uname -n | tr -c 'A-Za-z0-9_.\n-' '-')
me=$host-$$-$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')
tasks="duly:{$queue}:tasks" inflight="duly:{$queue}:inflight" reports="duly:{$queue}:reports"
cli=$(command -v redis-cli || command -v valkey-cli) || { echo "there is no redis-cli" >&2; exit 1; }
umask 077
dir=$(mktemp -d) || exit 1
: >"$dir/messages" >"$dir/headers"
[ -z "${DULY_TOKEN:-}" ] || echo "Authorization: Bearer $DULY_TOKEN" >"$dir/headers"
stopping=
trap 'stopping=${stopping:-$(date +%s)}' TERM INT
trap 'rm -rf "$dir"' EXIT

redis() { timeout 10 "$cli" -u "$url" ${user:+--user "$user"} "$@" 2>/dev/null; }

say() { echo "worker $me: $*" >&2; }

# ---- 1. Show that you live
beat() {
    running=0
    [ ! -e "$dir/running" ] || running=1
    facts="{\"host\":\"$host\",\"pid\":$$,\"queues\":[\"$queue\"],\"concurrency\":1,\"running\":$running,\"sdk\":\"sh/1\"}"
    [ "$(redis SET "duly:workers:$me" "$facts" PX 10000)" = OK ] || [ "$(redis PEXPIRE "duly:workers:$me" 10000)" = 1 ]
}

keep_beating() { # ends with the worker, also if that is killed
    while kill -0 $$ 2>/dev/null && [ -d "$dir" ]; do
        beat || say "cannot show that it lives; trying on"
        sleep 3
    done
}

# ---- 2. Read: from 0, what is pending under this name already; from >, what is new
fetch() {
    redis XREADGROUP GROUP workers "$me" COUNT 1 BLOCK 2000 STREAMS "$tasks" "$1" >"$dir/entry" || : >"$dir/entry"
    entry='' id='' token='' type='' payload='' timeout='' attempt='' confirm='' stream=''
    {
        IFS= read -r stream
        IFS= read -r entry
        while IFS= read -r name && IFS= read -r value; do
            case $name in id | token | type | payload | timeout | attempt | confirm) eval "$name=\$value" ;; esac
        done
    } <"$dir/entry"
    [ "$stream" != "$tasks" ] || { [ -n "$entry" ]; return; }
    case $stream in
    '') [ -s "$dir/entry" ] || redis PING >"$dir/pong" || sleep 1 ;;
    *) redis XGROUP CREATE "$tasks" workers 0 MKSTREAM >"$dir/pong" || sleep 1 ;; # NOGROUP: Redis is new, or lost its data
    esac
    return 1
}

# ---- 3. Begin
in_flight() { # prints the token that is in flight, or nothing
    until known=$(redis HGET "$inflight" "$id") && case $known in *[!0-9]*) false ;; esac; do
        say "cannot check a token; trying on"
        sleep 1
    done
    echo "$known"
}

may_start() { # 0: granted, 1: refused, 2: no clear answer
    body="{\"token\":$token,\"start_id\":\"$me/$entry\",\"worker\":\"$me\"}"
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        [ -n "$api" ] && [ -z "$stopping" ] && command -v curl >"$dir/pong" || return 2
        case $(curl -s -m 10 -o "$dir/pong" -w '%{http_code}' -H "@$dir/headers" -H 'Content-Type: application/json' \
            -d "$body" "$api/v1/tasks/$id/start") in
        200) return 0 ;;
        409) return 1 ;;
        esac
        sleep 1
    done
    return 2
}

attempt() {
    started=$(date +%s000)
    case $token in '' | *[!0-9]*) id='' ;; esac
    if [ -z "$id" ] || [ -z "$type" ]; then
        say "entry $entry cannot be read and is dropped"
        drop && return
    fi
    : >"$dir/messages"
    [ "$(in_flight)" = "$token" ] || { drop; return; }
    [ -z "$stopping" ] || { snooze 0; return; }
    if [ "$confirm" = 1 ]; then
        may_start
        case $? in 1) drop; return ;; 2) snooze 5; return ;; esac
    fi
    rm -f "$dir/code"
    printf %s "$payload" >"$dir/payload"
    touch "$dir/running"
    TASK_ID=$id TOKEN=$token ATTEMPT=$attempt setsid sh "$0" --handle "$type" "$dir" &
    group=$! why=''
    case $timeout in '' | *[!0-9.]*) timeout=300 ;; esac
    until_s=$(($(date +%s) + ${timeout%.*} + 1))
    until [ -e "$dir/code" ] || [ -n "$why" ]; do
        now=$(date +%s)
        [ "$now" -lt "$until_s" ] || why=timed_out
        [ -z "$stopping" ] || [ "$now" -lt $((stopping + drain_s)) ] || why=worker_stopped
        ! is_cancelled || why=cancelled
        sleep 0.1
    done
    [ -z "$why" ] || stop_group "$group"
    wait "$group" 2>/dev/null
    rm -f "$dir/running"
    tell "$why"
}

stop_group() { # the handler and all that it has started
    kill -TERM "-$1" 2>/dev/null
    sleep 0.5
    kill -KILL "-$1" 2>/dev/null
}

# ---- 4. Report, and give the entry back, in one step; a report's last value comes by standard input
script="if #ARGV > 1 then redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2)) end
redis.call('XACK', KEYS[1], 'workers', ARGV[1])
redis.call('XDEL', KEYS[1], ARGV[1])
return 'done'"

drop() {
    until [ "$(redis EVAL "$script" 2 "$tasks" "$reports" "$entry")" = "done" ]; do
        say "cannot give an entry back; trying on"
        sleep 1
    done
}

report() { # the file of the last value, the outcome, more fields; ends with the name of the last one
    last=$1 finished=$(date +%s000)
    shift
    until [ "$(redis -x EVAL "$script" 2 "$tasks" "$reports" "$entry" id "$id" token "$token" worker "$me" \
        started "$started" finished "$finished" outcome "$@" <"$last")" = "done" ]; do
        say "cannot report; trying on"
        sleep 1
    done
}

snooze() {
    printf %s "$1" >"$dir/delay"
    report "$dir/delay" snoozed delay
}

tell() { # what the attempt came to
    [ "$1" != cancelled ] || { drop; return; }
    [ "$1/$confirm" != worker_stopped/0 ] || { snooze 0; return; } # it comes again, without a retry used up
    code=0 kind=$1
    [ -n "$kind" ] || read -r code <"$dir/code"
    [ -z "$kind" ] || echo "the attempt was told to stop" >"$dir/err"
    [ "$code" != "$unknown" ] || { snooze 5; return; }
    if [ -z "$kind" ] && [ "$code" = 0 ]; then
        [ -s "$dir/out" ] || printf null >"$dir/out"
        report "$dir/out" completed result
        return
    fi
    message=$(head -c 10000 "$dir/err" | tr '\000-\037' ' ' | sed 's/\\/\\\\/g; s/"/\\"/g')
    printf '{"type":"%s","message":"%s"}' "${kind:-exit_code_$code}" "$message" >"$dir/error"
    retry=1
    [ "$code" != 100 ] || retry=0
    report "$dir/error" failed retry "$retry" error
}

# ---- 6. Be told to stop
keep_listening() {
    while kill -0 $$ 2>/dev/null && [ -d "$dir" ]; do
        timeout 60 "$cli" -u "$url" ${user:+--user "$user"} SUBSCRIBE "duly:control:$me" >>"$dir/messages" 2>/dev/null
        sleep 0.5
    done
}

is_cancelled() {
    [ -s "$dir/messages" ] && grep "\"cancel\": *\"$id\"" "$dir/messages" | grep -q "\"token\": *\"\{0,1\}$token[^0-9]"
}

until beat; do
    [ -z "$stopping" ] || exit 0
    say "cannot reach Redis; trying on"
    sleep 1
done
keep_beating &
beating=$!
keep_listening &
listening=$!
say "takes tasks from $queue"
while [ -z "$stopping" ]; do
    fetch 0 || fetch '>' || continue
    attempt
done

# ---- 7. Leave
while fetch 0; do attempt; done # gives back what came in between
kill "$beating" "$listening"
wait "$beating" "$listening" 2>/dev/null
sleep 0.2 # for a command of theirs that is under way
redis DEL "duly:workers:$me" >"$dir/pong"
exit 0
