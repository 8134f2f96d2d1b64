# shellcheck shell=bash
# Starts a gander to try something with. Sourced; needs gander and goose, the paths of the two programs.

# Starts gander with the demo's model, its state in the folder $1, and further settings as NAME=VALUE. Sets gander_pid,
# and GANDER and TOKEN as the examples want them; what it logs is in $1/log.
start_gander() {
    local folder="$1"
    shift
    : >"$folder/out"
    # shellcheck disable=SC2154
    env -i PATH="$PATH" HOME="$folder" GANDER_STORAGE__DIR="$folder/storage" GANDER_GOOSE__COMMAND="$goose" "$@" \
        "$gander" serve --demo --listen 127.0.0.1:0 >"$folder/out" 2>"$folder/log" &
    gander_pid=$!
    until GANDER="$(sed -n 's/.*listens on \(http:[^ ]*\)$/\1/p' "$folder/out")" && [[ -n "$GANDER" ]]; do
        kill -0 "$gander_pid" 2>/dev/null || { cat "$folder/log" >&2 && return 1; }
        sleep 0.1
    done
    TOKEN="$(<"$folder/storage/token")"
    export GANDER TOKEN
}
