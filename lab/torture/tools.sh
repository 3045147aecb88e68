#!/usr/bin/env bash
# Unpacks MariaDB and builds the engines below the folder that is given; what is there already is left alone.
# With `postgres` behind it: only the engine of PostgreSQL.
set -euo pipefail
target=$1 only=${2:-}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
if [[ -z $only && ! -x $target/mariadb/usr/sbin/mariadbd ]]; then
    mkdir -p "$target/deb" "$target/mariadb"
    (cd "$target/deb" && apt-get download mariadb-server mariadb-server-core mariadb-client mariadb-client-core \
        liburing2 libmariadb3 libaio1)
    for package in "$target"/deb/*.deb; do dpkg -x "$package" "$target/mariadb"; done
fi
for build in postgres:3.6.1.Final mariadb:3.5.0.Final; do
    out=$target/engines/${build%:*}
    [[ -z $only || $only == "${build%:*}" ]] || continue
    if [[ ! -f $out/classes/Capture.class || $here/engine/src/main/java/Capture.java -nt $out/classes/Capture.class ]]; then
        mvn -q -B -f "$here/engine" package dependency:copy-dependencies -Dconnector="${build%:*}" \
            -Ddebezium="${build#*:}" -Dout="$out" -DoutputDirectory="$out/lib"
    fi
done
