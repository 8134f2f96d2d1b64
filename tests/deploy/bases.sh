# shellcheck shell=bash
# The base images of tests/deploy/image, in place of a registry's. Sourced; needs root, the folders store and scratch.

# buildah on images of its own, beside this machine's.
own_buildah() {
    BUILDAH_ISOLATION=chroot buildah --storage-driver vfs --root "$store/storage" --runroot "$store/run" "$@"
}

# Two base images: a small Debian, and the same with a C compiler and what the lent programs need.
make_bases() {
    own_buildah rm --all >/dev/null 2>&1 || true
    own_buildah rmi --all --force >/dev/null 2>&1 || true
    local container folder
    say "making the base images, once"
    container="$(own_buildah from scratch)"
    folder="$(own_buildah mount "$container")"
    debootstrap --variant=minbase bookworm "$folder" >"$scratch/debootstrap" 2>&1 ||
        { tail -n 20 "$scratch/debootstrap" >&2 && return 1; }
    # What an official slim image leaves out.
    rm -rf "$folder"/var/lib/apt/lists/* "$folder"/var/cache/apt/* "$folder"/usr/share/{doc,info,locale,man}/*
    own_buildah commit --quiet "$container" localhost/gander-base >/dev/null
    own_buildah run "$container" -- sh -c "apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends ca-certificates gcc libc6-dev libatomic1 &&
        ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm" >"$scratch/packages" 2>&1 ||
        { tail -n 20 "$scratch/packages" >&2 && return 1; }
    own_buildah config --env PATH=/lent/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        --env CARGO_HOME=/lent/cargo --env CARGO_NET_OFFLINE=true \
        --env NODE_EXTRA_CA_CERTS=/lent/certificates.crt "$container"
    own_buildah commit --quiet --rm "$container" localhost/gander-build >/dev/null
}
