# options_page.sh COMM-INFO PAGE: the checked-in page is what the option table says.
if "$1" --options-markdown | diff -u "$2" -; then
    exit 0
fi
echo "the page is not what the table says: comm-info --options-markdown > docs/reference/options.md"
exit 1
