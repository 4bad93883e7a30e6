import { type createAmphora, until } from '../worlds/amphora.js'

/** What an agent does to the kernel's tables: it changes the rules, ends flows, or reads the rules. */
type Act = 'nft -f' | 'conntrack -D' | 'nft list'
/** Just before or just after it. */
type Step = `${'before' | 'after'} ${Exclude<Act, 'nft list'>}`

/** Stands in front of a program, and runs it. */
const GATE = `#!/bin/bash
program=/run/gates/programs/$(basename "$0")
act="$(basename "$0") $1"
[[ " $* " == *' list '* ]] && act='nft list'
if [[ -e "/run/gates/fail $act" ]]; then echo 'Error: Cannot allocate memory' >&2; exit 1; fi
[[ $1 == -f || $1 == -D ]] || exec "$program" "$@"
if [[ $1 == -f ]]; then text=$(cat); fi
stop() {
  [[ $act != 'nft -f' || $text == *krater_datagrams* ]] || return
  mv "/run/gates/$1 $act" /run/gates/stopped 2>/dev/null && read -r </run/gates/stopped
}
stop before
"$program" "$@" <<<"$text"
status=$?
stop after
exit $status
`

/** Gates before the programs by which an amphora's agent changes the kernel, so that a test can act at a certain step. */
export function createGates({ inside }: Awaited<ReturnType<typeof createAmphora>>) {
  const shell = (script: string) => inside('bash', '-ec', script)
  shell(`
    mkdir -p /run/gates/programs
    for name in nft conntrack; do [[ -e /run/gates/programs/$name ]] || cp "$(command -v $name)" /run/gates/programs/; done
    base64 -d <<<'${Buffer.from(GATE).toString('base64')}' >/run/gates/gate
    chmod 755 /run/gates/gate
    for name in nft conntrack; do mount --bind /run/gates/gate "$(command -v $name)"; done
  `)
  return {
    /** The next time that the agent comes to this step, it waits there. @returns resolves when it has come there */
    stopAt: (step: Step) => {
      shell(`rm -f /run/gates/stopped; mkfifo '/run/gates/${step}'`)
      return () => until(() => (shell('ls /run/gates').includes('stopped') ? true : null))
    },
    /** Lets what has been stopped go on, if it is still there. */
    letGo: () => shell('echo 1<>/run/gates/stopped'),
    /** From now on, this fails. @returns a function that ends it */
    fail: (act: Act) => {
      shell(`touch '/run/gates/fail ${act}'`)
      return () => shell(`rm '/run/gates/fail ${act}'`)
    },
    remove: () => shell('for name in nft conntrack; do umount --lazy "$(command -v $name)"; done'),
  }
}
