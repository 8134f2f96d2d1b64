# shellcheck shell=bash
# What a container engine does with an image, as far as the tests need it: namespaces of its own, a read-only root with
# a few places to write, the image's user without any privilege, and the image's own command, environment and folder.
# Sourced; needs root, jq and util-linux, the latter in the image too.

container_outer="" container_pid=""

# Starts the image whose files are in the folder $1 and whose configuration is the file $2, with the folder $3 as its
# volume; further arguments take the place of its command. Sets container_outer, the process to wait for, and
# container_pid, the container's process 1. Its output is appended to the file $4. It does not get
# descriptor 8, on which its caller may hold a lock.
start_container() {
    local folder="$1" configuration="$2" volume="$3" output="$4"
    shift 4
    container_user="$(jq -r .User "$configuration")"
    container_home="$(jq -r .WorkingDir "$configuration")"
    # The user's numbers and home, as the image's own files give them.
    local ids home
    ids="$(awk -F: -v user="$container_user" '$1 == user { print "uid=" $3 ",gid=" $4 }' "$folder/etc/passwd")"
    home="$(awk -F: -v user="$container_user" '$1 == user { print $6 }' "$folder/etc/passwd")"
    [[ -n "$ids" && -n "$home" ]] || return 1
    mapfile -t container_environment < <(jq -r '.Env[]' "$configuration")
    local mount command=()
    mount="$(jq -r '.Volumes | keys[0]' "$configuration")"
    (($# > 0)) || { mapfile -t command < <(jq -r '.Cmd[]' "$configuration") && set -- "${command[@]}"; }
    mapfile -t command < <(jq -r '.Entrypoint[]' "$configuration")

    # shellcheck disable=SC2016  # The inner shell expands it.
    unshare --mount --net --uts --ipc --pid --fork --kill-child sh -euc '
        folder="$1" volume="$2" mount="$3" user="$4" workdir="$5" ids="$6" home="$7"
        shift 7
        ip link set lo up
        mount --bind "$folder" "$folder"
        mount --bind "$volume" "$folder$mount"
        mount -t proc -o nosuid,nodev,noexec proc "$folder/proc"
        mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$folder/tmp"
        mount -t tmpfs -o "nosuid,nodev,mode=0700,$ids" tmpfs "$folder$home"
        mount -t tmpfs -o nosuid,mode=0755 tmpfs "$folder/dev"
        for device in null zero full random urandom tty; do
            touch "$folder/dev/$device"
            mount --bind "/dev/$device" "$folder/dev/$device"
        done
        mkdir -m 1777 "$folder/dev/shm"
        ln -s /proc/self/fd "$folder/dev/fd"
        mount -o remount,bind,ro "$folder" "$folder"
        cd "$folder"
        exec chroot "$folder" setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs \
            --bounding-set=-all --inh-caps=-all env -i --chdir="$workdir" "$@"
    ' sh "$folder" "$volume" "$mount" "$container_user" "$container_home" "$ids" "$home" \
        "${container_environment[@]}" "${command[@]}" "$@" >>"$output" 2>&1 8>&- &
    container_outer=$!
    until container_pid="$(pgrep -P "$container_outer")"; do
        kill -0 "$container_outer" 2>/dev/null || return 1
        sleep 0.05
    done
}

# Runs a program in the container as its user, as `docker exec` does.
in_container() {
    nsenter --target "$container_pid" --mount --net --uts --ipc --pid --root --wd \
        setpriv --reuid="$container_user" --regid="$container_user" --clear-groups --no-new-privs --bounding-set=-all \
        --inh-caps=-all env -i --chdir="$container_home" "${container_environment[@]}" "$@"
}

# Runs one of this machine's programs on the container's network: what reaches a published port.
on_network_of_container() { nsenter --target "$container_pid" --net "$@"; }

# Asks the container to stop, as `docker stop -t $1` does. Sets container_took, in seconds, and container_status; fails
# unless that is 0, which it is not when the container had to be killed.
stop_container() {
    local patience="$1" began=$SECONDS
    kill -TERM "$container_pid"
    while kill -0 "$container_pid" 2>/dev/null && ((SECONDS - began < patience)); do sleep 0.1; done
    kill -KILL "$container_pid" 2>/dev/null || true
    container_status=0
    wait "$container_outer" || container_status=$?
    container_outer="" container_pid=""
    container_took=$((SECONDS - began))
    return "$container_status"
}

# Whatever is left of it, by force. The end of a process 1 is the end of all in its namespace, and of the mounts; the
# outer process ends behind it. To kill only that one would not do: the kernel forgets the signal that --kill-child asks
# for when setpriv changes the user.
end_container() {
    [[ -n "$container_outer" ]] || return 0
    kill -KILL "${container_pid:-$container_outer}" 2>/dev/null || true
    wait "$container_outer" 2>/dev/null || true
    container_outer="" container_pid=""
}
