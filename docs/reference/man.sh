#!/bin/sh
# man.sh DOXYGEN2MAN XML OUT VERSION: a man page for each header and each function. doxygen2man dates pages, and claims a copyright for them;
# both are removed, so that the same headers give the same pages.
set -e
doxygen2man=$1 xml=$2 out=$3 version=$4
mkdir -p "$out"
for page in "$xml"/*_8h.xml; do
    "$doxygen2man" -m -g -o "$out" -d "$xml" -p commstream -H "commstream $version" -i commstream/ -D "$version" "${page##*/}" >/dev/null
done
sed -i '/^\.SH "COPYRIGHT"/,$d' "$out"/*.3
