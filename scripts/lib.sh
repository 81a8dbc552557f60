# shellcheck shell=bash
# Shell functions that the scripts share. Sourced, never run. Callers run under `set -euo pipefail`.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
self=$(basename "$0")

say() {
    printf '%s: %s\n' "$self" "$*" >&2
}

die() {
    printf '%s: error: %s\n' "$self" "$1" >&2
    shift
    for line in "$@"; do
        printf '    %s\n' "$line" >&2
    done
    exit 1
}

# The comment block at the head of the calling script is its help text.
print_help() {
    sed -n '2,/^[^#]/{/^#/{s/^# \{0,1\}//;p}}' "$0"
}

# fitting NUMBER GIB: that number of jobs, but no more than memory allows, at so much each.
fitting() {
    local memory
    memory=$(awk -v each="$2" '/MemAvailable/ { print int($2 / 1048576 / each) }' /proc/meminfo)
    [ "$memory" -ge 1 ] || memory=1
    echo $(($1 < memory ? $1 : memory))
}

# The number of compile jobs: all cores (about 1 GiB each).
job_count() {
    fitting "$(nproc)" 1
}

# as_root COMMAND…: runs it as root, by sudo where needed.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo > /dev/null; then
        sudo "$@"
    else
        return 126
    fi
}

# has_command NAME: whether there is one, those for root among them.
has_command() {
    command -v "$1" > /dev/null || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]
}

# apt_get ARGUMENT…: as root, without questions, and with patience for another that runs.
apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        -o APT::Install-Recommends=false "$@"
}

# A Python interpreter that has pip: the system's, else one in .deps/pip, else the system's once pip is installed.
find_pip() {
    if python3 -m pip --version > /dev/null 2>&1; then
        echo python3
    elif python3 -m venv "$deps/pip" > /dev/null 2>&1; then
        echo "$deps/pip/bin/python3"
    elif has_command apt-get; then
        say "installing python3-pip"
        mkdir -p "$deps"
        apt_get update > "$deps/apt.log" 2>&1 || true
        apt_get install python3-pip >> "$deps/apt.log" 2>&1 && echo python3
    else
        return 1
    fi
}

# The CUDA toolkit that scripts/setup chose.
cuda_root() {
    [ -r "$deps/cuda-root" ] || die "no CUDA toolkit chosen yet" "run scripts/setup"
    cat "$deps/cuda-root"
}

cuda_include() {
    local toolkit=$1 folder
    for folder in "$toolkit/include" "$toolkit/targets/x86_64-linux/include"; do
        if [ -r "$folder/cuda.h" ]; then
            echo "$folder"
            return 0
        fi
    done
    return 1
}

# configure PRESET [ARGUMENT…]: configures the build with the toolkit that setup chose (takes a second if it was configured).
configure() {
    local preset=$1 toolkit include log
    shift
    toolkit=$(cuda_root)
    include=$(cuda_include "$toolkit")
    log=$root/build/$preset-configure.log
    mkdir -p "$root/build"
    say "configuring preset $preset (CUDA: $toolkit)"
    if ! (cd "$root" && cmake --preset "$preset" -DRG_CUDA_ROOT="$toolkit" -DRG_CUDA_INCLUDE="$include" \
            -DRG_NVCC="$toolkit/bin/nvcc" "$@") > "$log" 2>&1; then
        tail -n 30 "$log" >&2
        die "the configuration failed" "the whole output is in $log"
    fi
    grep -A4 'CMake Warning' "$log" >&2 || true
}

# build PRESET [TARGET…]: builds, with Ninja's progress on a terminal and one line per twenty steps elsewhere.
build() {
    local preset=$1 log status=0
    shift
    log=$root/build/$preset-build.log
    say "building preset $preset"
    if [ -t 2 ]; then
        ninja -C "$root/build/$preset" -j "$(job_count)" "$@" 2>&1 | tee "$log" >&2 || status=1
    else
        ninja -C "$root/build/$preset" -j "$(job_count)" "$@" 2>&1 | tee "$log" |
            awk '/^\[[0-9]+\/[0-9]+\]/ { if (++n % 20 == 0) { print; fflush() } }' >&2 || status=1
    fi
    if [ "$status" -ne 0 ]; then
        grep -E -A12 'FAILED:|error:' "$log" | head -n 60 >&2 || true
        die "the build failed" "the whole output is in $log"
    fi
}
