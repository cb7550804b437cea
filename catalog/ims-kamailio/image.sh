#!/bin/sh
# image.sh [TAG]: makes the image that the deployment names, out of this host's
# own Kamailio and Redis with the libraries they need. Needs no registry. Run it
# again after upgrading them.
set -eu
export PATH="$PATH:/usr/sbin"
tag=${1:-vitrine/ims-kamailio:bookworm}
here=$(dirname "$0")

programs="kamailio kamcmd redis-server redis-cli /bin/sh setsid cp tr grep"
files=""
for program in $programs; do
	path=$(command -v "$program") || {
		echo "$0: this host has no $program: see README.md for the packages" >&2
		exit 3
	}
	files="$files $path"
done

# The modules that the configurations load, and what Kamailio reads of db_redis.
folder=$(ls -d /usr/lib/*/kamailio/modules /usr/lib/kamailio/modules 2>/dev/null | head -n 1)
for module in $(sed -n 's/^loadmodule "\(.*\)"/\1/p' "$here"/*.cfg | sort -u); do
	files="$files $folder/$module"
done
files="$files /usr/share/kamailio/db_redis"

libraries=$(for file in $files; do
	[ -d "$file" ] || ldd "$file" 2>/dev/null
done | sed -n 's/.*[[:space:]]\(\/[^ ]*\) (0x.*/\1/p' | sort -u)

# Links are followed, so that a library lies under the name it is asked for by.
tar --create --dereference --directory / --file - $(printf '%s\n' $files $libraries | sed 's|^/||' | sort -u) |
	docker import --change 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$tag"
