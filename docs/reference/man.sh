#!/bin/sh
# man.sh DOXYGEN2MAN XML OUT VERSION: a man page for each header and each function. doxygen2man dates pages, and claims a copyright for them;
# both are removed, so that the same headers give the same pages. It ends a text at its first link, so links become plain text before: in
# all prose, and in the members of structs.
set -e
doxygen2man=$1 xml=$2 out=$3 version=$4
mkdir -p "$out"
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
cp "$xml"/*.xml "$plain"
sed -i -E '/<para>/s/<(ref|ulink) [^>]*>([^<]*)<\/(ref|ulink)>/\2/g' "$plain"/*.xml
sed -i 's/<ref [^>]*>\([^<]*\)<\/ref>/\1/g' "$plain"/struct*.xml
# Of a member it prints only what is behind the first sentence; so the whole text is put there.
sed -i -z 's#<briefdescription>#<detaileddescription>#g; s#</briefdescription>\n *<detaileddescription>\n##g' "$plain"/struct*.xml
for page in "$plain"/*_8h.xml; do
    "$doxygen2man" -m -g -o "$out" -d "$plain" -p commstream -H "commstream $version" -i commstream/ -D "$version" "${page##*/}" >/dev/null
done
sed -i '/^\.SH "COPYRIGHT"/,$d' "$out"/*.3
