# shellcheck shell=bash
# What the tests' own scripts install. Sourced; needs root, the repository's folder.

# Installs Debian's package of each program that is missing; `program:package` where it has another name. Services that
# come with them are not started: a test starts its own.
need_programs() {
    local program missing=()
    for program in "$@"; do
        [[ -n "$(type -P "${program%%:*}")" ]] || missing+=("${program#*:}")
    done
    ((${#missing[@]} == 0)) && return
    if [[ "$(id -u)" != 0 ]] || ! type -P apt-get >/dev/null; then
        printf 'missing: %s\n' "${missing[*]}" >&2
        return 1
    fi
    printf 'installing %s\n' "${missing[*]}" >&2
    DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
    # Debian's own way to forbid it (invoke-rc.d asks this program); one that is there already stays as it is.
    local policy=/usr/sbin/policy-rc.d status=0
    if [[ -e "$policy" ]]; then policy=""; else printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"; fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || status=$?
    [[ -z "$policy" ]] || rm -f "$policy"
    return "$status"
}

# Runs what follows unless it was done before, under the name $1, for the same contents of the files named in $2 and
# in the same place: what is installed may have its own path in it.
once() {
    local mark="$root/.tools/$1" files="$2" sum
    shift 2
    # shellcheck disable=SC2086
    sum="$({ pwd && cat $files; } | sha256sum)"
    [[ -f "$mark" && "$(<"$mark")" == "$sum" ]] && return
    "$@" >&2
    mkdir -p "$root/.tools"
    printf '%s' "$sum" >"$mark"
}

# Makes a Python environment in $1 with what the file $2 lists.
install_python() {
    # python3 may be there without what makes environments.
    python3 -c "import ensurepip" 2>/dev/null || need_programs missing-ensurepip:python3-venv
    rm -rf "$1"
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"
}
