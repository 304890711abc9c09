# dev_refuses.sh DEV: a command that ./dev does not know is named, with what it expected.
said=$("$1" tset 2>&1)
status=$?
case $status:$said in
"2:dev: there is no command 'tset'"*"usage: ./dev COMMAND"*) ;;
*) echo "dev tset: status $status; it said: $said" && exit 1 ;;
esac
said=$("$1" test all 2>&1) && exit 1
echo "$said" | grep -qx "dev: test knows net, long, loaded and arm, not 'all'"
