"""Bash programs that run in a container: its first process, and one that kills all others.

The init process starts the shell again whenever it ends, and nothing inside can kill it. Its
standard input is the owner's: a line with the mark of all messages, then commands, which a feeder
hands to the shell, so that the end of input (the owner's end) is noticed while a command runs. It
sends F, the feeder's number, and D, that the shell ended, with a word that must be read back
before the next one starts: what was meant for the old shell is passed over.
"""

INIT_SCRIPT = r"""
IFS= read -r mark || exit
exec 5<&0 3>&1 4>&1 </dev/null >/dev/null 2>&1
feed() {
  exec 4>&- 9>&1
  printf '%sF %s\0' "$mark" "$BASHPID" >&3
  exec 3>&-
  LC_ALL=C
  while IFS= read -r line <&5; do printf '%s\n' "$line" >&9 || exit; done
  kill -9 -1
}
while :; do
  exec 6< <(feed)
  feeder=$!
  (exec -a bash "$BASH" --noprofile --norc -s <&6 5<&- 6<&-)
  code=$?
  kill -9 $feeder
  wait $feeder
  word=$RANDOM$RANDOM$RANDOM
  printf '%sD %s %s\0' "$mark" "$code" "$word" >&3
  until [ "$line" = "go $word" ]; do IFS= read -r line <&5 || exit 0; done
done"""
KILL_SCRIPT = r"""
for round in 1 2 3; do
  for path in /proc/[0-9]*; do
    case " $0 $$ $PPID " in *" ${path#/proc/} "*) ;; *) kill -9 "${path#/proc/}" ;; esac
  done
done 2>/dev/null
exit 0"""
"""Script for `bash -c`, with the process ids to spare as its name."""
