#!/bin/bash
# Stands in for docker.io/library/postgres: the same variables, folder and user, with Debian's PostgreSQL 15.
set -e
data=/var/lib/postgresql/data
bin=/usr/lib/postgresql/15/bin
mkdir -p "$data/pg" && chown -R postgres "$data"
if [[ ! -s $data/pg/PG_VERSION ]]; then
    password=$(mktemp)
    printf '%s' "$POSTGRES_PASSWORD" >"$password"
    chown postgres "$password"
    runuser -u postgres -- "$bin/initdb" -D "$data/pg" -U "$POSTGRES_USER" --auth-host=scram-sha-256 --auth-local=trust \
        --pwfile="$password" >/dev/null
    rm "$password"
    echo "host all all all scram-sha-256" >>"$data/pg/pg_hba.conf"
    runuser -u postgres -- "$bin/pg_ctl" -D "$data/pg" -w -o "-c listen_addresses=''" start >/dev/null
    runuser -u postgres -- "$bin/createdb" -U "$POSTGRES_USER" "$POSTGRES_DB" || true
    runuser -u postgres -- "$bin/pg_ctl" -D "$data/pg" -w stop >/dev/null
fi
exec runuser -u postgres -- "$bin/postgres" -D "$data/pg" -c listen_addresses='*'
