#!/usr/bin/env bash
# Asks gander's agent for something and shows what it does, with curl and jq.
#
#   GANDER=http://127.0.0.1:4665 TOKEN=$(gander token) examples/shell/ask.sh "Have a look around."
#
# When the agent asks for permission, so does this script; ANSWER=allow or ANSWER=reject answers every time.
# A lost connection is taken up again where it was cut: what has been shown is not shown twice, and nothing is missed.
set -euo pipefail

: "${GANDER:?the address of gander, such as http://127.0.0.1:4665}" "${TOKEN:?what \`gander token\` prints}"
prompt="${1:?what the agent is to do}"

# curl with the token, which is not among the arguments: those every user of the machine can read.
gander() { curl --silent --show-error --config <(printf 'header = "Authorization: Bearer %s"\n' "$TOKEN") "$@"; }

# Calls gander: method, path, and JSON if there is any. Prints the answer; on a refusal says why and fails.
call() {
    local method="$1" path="$2" body="${3:-}"
    local answer status
    answer="$(gander --write-out '\n%{http_code}' --request "$method" \
        ${body:+--header 'Content-Type: application/json' --data-binary "$body"} \
        "$GANDER$path")"
    status="${answer##*$'\n'}"
    answer="${answer%$'\n'*}"
    if ((status >= 400)); then
        jq -r '"gander: \(.code): \(.detail)"' <<<"$answer" >&2
        return 1
    fi
    printf '%s' "$answer"
}

# Asks the person, who may be on a terminal although the events come in by a pipe.
decide() {
    local answer="${ANSWER:-}"
    while [[ "$answer" != allow && "$answer" != reject ]]; do
        read -r -p "allow or reject? " answer </dev/tty
    done
    printf '%s' "$answer"
}

session="$(call POST /v1/sessions '{"mode": "approve"}' | jq -r .id)"
trap 'call DELETE "/v1/sessions/$session" || true' EXIT
call POST "/v1/sessions/$session/turns" "$(jq -n --arg prompt "$prompt" '{prompt: $prompt}')" >/dev/null

# Shows one event (a line of JSON). Fails when it was the turn's last.
show() {
    local event="$1" permission
    case "$(jq -r .type <<<"$event")" in
        message.delta) jq -rj .text <<<"$event" ;;
        tool_call.started) jq -r '"\n[\(.tool_call.title)]"' <<<"$event" ;;
        tool_call.output) jq -rj '.text // ""' <<<"$event" ;;
        plan.updated) jq -r '"", (.plan.entries[] | "  \({completed: "x", in_progress: "-"}[.status] // " ") \(.content)"), ""' <<<"$event" ;;
        notice) jq -r '"(\(.message))"' <<<"$event" ;;
        permission.requested)
            permission="$(jq -r '.permission | select(.state == "pending") | .id' <<<"$event")"
            jq -r '.permission.tool_call | "The agent asks: \(.title) \(.input)"' <<<"$event"
            [[ -z "$permission" ]] ||
                call POST "/v1/sessions/$session/permissions/$permission" "{\"decision\": \"$(decide)\"}" >/dev/null
            ;;
        turn.completed) echo && return 1 ;;
        turn.failed | turn.cancelled | turn.interrupted)
            jq -r '"\n\(.turn.state): \(.turn.error.message // .turn.stop_reason)"' <<<"$event"
            return 1
            ;;
    esac
}

# The events as lines of JSON. The place to go on from is the last event's id.
after=0
while true; do
    while IFS= read -r event; do
        after="$(jq -r '.id // .next_after // empty' <<<"$event")"
        show "$event" || exit 0
    done < <(gander --no-buffer --header 'Accept: application/x-ndjson' \
        "$GANDER/v1/sessions/$session/events?after=$after")
    sleep 1
done
