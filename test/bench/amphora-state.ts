import { execFile } from 'node:child_process'
import { createConnection } from 'node:net'
import { promisify } from 'node:util'
import { encodeFrame } from '../../amphora-agent/protocol/frames.js'
import { AGENT_SOCKET } from '../../amphora-agent/protocol/messages.js'
import { processesInside } from '../support/faults/crash-amphora.js'

const run = promisify(execFile)
const LIMIT_MS = 5_000
const ANSWER_MS = 1_000

/** All of an amphora that a drift may touch, one fact per line, without counters, times and PIDs. */
const FACTS = `
cd /run/krater
for file in config/current/*.c*f*; do echo "file $file $(sha256sum <$file)"; done
for socket in agent.sock haproxy.sock haproxy-master.sock; do [ -S $socket ] && echo "socket $socket"; done
[ $(stat -f -c '%a*%S' . | bc) -gt 600000 ] && echo 'room on the disk'
ask() { echo "$1" | timeout 2 socat -t1 - UNIX:haproxy.sock; }
ask 'show servers state' | awk 'NF > 20 && !/^#/ { print "server", $2, $4, $5, $6, $7, $8 }'
ask 'show stat -1 1 -1' | awk -F, '$2 == "FRONTEND" { print "frontend", $1, $18 }'
ps -eo stat=,comm= | awk '$2 ~ /^(haproxy|keepalived|sshd|node)$/ { print "program", $2, ($1 ~ /^[Tt]/ ? "stopped" : "runs") }' | sort -u
ip -oneline link | awk '{ print "link", $2, $3 }' | sed s/@[^:]*//
ip -oneline address | awk '{ print "address", $2, $4 }'
for family in 4 6; do
  ip -$family route show table all | grep -v 'table local' | sed "s/^/route $family /"
  ip -$family rule | sed "s/^/rule $family /"
done
nft -s list ruleset | sort | sed 's/^/filter /'
`

/**
 * The state of an amphora as its host sees it, without asking the programs that repair it. Equal states are the
 * same in all that a drift may touch.
 * @param managementAddress sshd must answer there
 */
export async function stateOf(namespace: string, managementAddress: string): Promise<ReadonlySet<string>> {
  const inside = await processesInside(namespace).catch(() => [])
  const pid = inside.find(({ isFirst }) => isFirst)?.pid
  if (pid === undefined) return new Set()
  const [facts, agent, sshd] = await Promise.all([
    run('nsenter', ['-t', String(pid), '-n', '-m', '-p', 'bash', '-c', FACTS], { timeout: LIMIT_MS }).then(
      ({ stdout }) => stdout.split('\n'),
      () => [],
    ),
    answers({ path: `/proc/${pid}/root${AGENT_SOCKET}` }, encodeFrame({ id: 1, verb: 'hello' })),
    answers({ host: managementAddress, port: 22 }, 'SSH-2.0-bench\r\n'),
  ])
  return new Set([...facts.map(line => line.trimEnd()), `agent answers: ${agent}`, `sshd answers: ${sshd}`])
}

/** Runs shell text as root inside an amphora. */
export async function shellInside(namespace: string, text: string): Promise<string> {
  const pid = (await processesInside(namespace)).find(({ isFirst }) => isFirst)?.pid
  const { stdout } = await run('nsenter', ['-t', String(pid), '-n', '-m', '-p', 'bash', '-c', text], {
    timeout: 4 * LIMIT_MS,
  })
  return stdout
}

function answers(to: { path: string } | { host: string; port: number }, words: string | Buffer): Promise<boolean> {
  return new Promise(resolve => {
    const socket = createConnection(to)
    const end = (answered: boolean) => {
      socket.destroy()
      resolve(answered)
    }
    socket.setTimeout(ANSWER_MS, () => end(false))
    socket.on('error', () => end(false))
    socket.on('close', () => end(false))
    socket.on('data', () => end(true))
    socket.write(words)
  })
}
