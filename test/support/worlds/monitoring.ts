import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import type { DatagramPool } from '../../../amphora-agent/protocol/datagrams.js'
import { createNamespace, until } from './amphora.js'

/** Addresses of the machine and of the members on one link. Nobody has those of `absent`. */
export const ADDRESSES = {
  machine: ['192.0.2.1', '2001:db8::1'],
  members: ['192.0.2.2', '2001:db8::2'],
  absent: ['192.0.2.9', '2001:db8::9'],
} as const

/** What is known of a member: `up`, `down`, `unknown`, or `down: L4TOUT`. */
type States = Record<string, string>

/** A memory file system on /run, and the monitors, which start again whenever they end. */
const INIT = `
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/krater
ip link set lo up
exec 3<&0 4>&2 2>/dev/null
while :; do
  setpriv --bounding-set=-sys_ptrace "$@" <&3 2>&4 & wait $! || true
done
`

/** The agent's monitors in a machine, and members in another one that is linked to it. `end` ends all of it. */
export async function createMonitoring() {
  const directory = mkdtempSync(join(tmpdir(), 'krater-monitoring-'))
  await build({
    entryPoints: [
      fileURLToPath(new URL('../clients/monitoring.ts', import.meta.url)),
      fileURLToPath(new URL('../clients/probed-members.ts', import.meta.url)),
    ],
    ...{ bundle: true, platform: 'node', target: 'node20', format: 'esm', outExtension: { '.js': '.mjs' } },
    ...{ outdir: directory, logLevel: 'error' },
  })
  const namespaces = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc']
  const program = [process.execPath, join(directory, 'monitoring.mjs')]
  const machine = spawn('unshare', [...namespaces, 'bash', '-c', INIT, 'init', ...program], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const seen = { starts: 0, states: {} as States, repaired: [] as string[], logged: [] as string[] }
  createInterface({ input: machine.stdout }).on('line', line => {
    const { started, states, repaired, logged } = JSON.parse(line)
    if (started) seen.starts += 1
    if (states) seen.states = states
    if (repaired) seen.repaired.push(repaired)
    if (logged) seen.logged.push(logged)
  })
  await until(() => (seen.starts > 0 ? true : null))
  const initPid = childrenOf(machine.pid!)[0]!
  const monitorsPid = () => childrenOf(initPid)[0] ?? null

  const network = createNamespace()
  await network.ready
  const inside = (...words: string[]) =>
    execFileSync('nsenter', ['-t', String(initPid), '-n', '-m', '-p', ...words], { encoding: 'utf8', stdio: 'pipe' })
  network.ip('link', 'add', 'm0', 'type', 'veth', 'peer', 'name', 'a0', 'netns', String(initPid))
  const link = (ip: (...args: string[]) => unknown, device: string, addresses: readonly string[]) => {
    for (const address of addresses) {
      ip('address', 'add', ...(address.includes(':') ? [`${address}/64`, 'nodad'] : [`${address}/24`]), 'dev', device)
    }
    ip('link', 'set', device, 'up')
  }
  link(network.ip, 'm0', ADDRESSES.members)
  link((...args) => inside('ip', ...args), 'a0', ADDRESSES.machine)
  const inNetwork = (...words: string[]) => startTalker(['nsenter', '-t', String(network.pid), '-n', ...words])
  // By default, a host tells another one once a second that ports are closed.
  const limits = ['net.ipv4.icmp_ratelimit=0', 'net.ipv6.icmp.ratelimit=0']
  execFileSync('nsenter', ['-t', String(network.pid), '-n', 'sysctl', '-q', ...limits])
  const members = await inNetwork(process.execPath, join(directory, 'probed-members.mjs'))
  const sctp = await inNetwork('perl', fileURLToPath(new URL('../services/sctp-members.pl', import.meta.url)))

  return {
    seen,
    /** Replaces what is watched. */
    watch: (pools: readonly DatagramPool[], down: readonly string[] = []) => {
      machine.stdin.write(`${JSON.stringify({ pools, down })}\n`)
    },
    /** Waits until everything is known that is expected, by member. */
    untilStates: async (expected: States) => {
      const differing = () => Object.entries(expected).filter(([id, state]) => seen.states[id] !== state)
      await until(() => (differing().length === 0 ? true : null), 20_000).catch(() => {
        throw new Error(
          differing()
            .map(([id, state]) => `${id} is ${seen.states[id]}, not ${state}`)
            .join('; '),
        )
      })
    },
    inside,
    /** Opens or closes TCP port 7000 of the members. */
    toggle: (how: 'open' | 'close') => members.ask(how),
    /** The ports at which members were told that nothing follows the INIT, one for each time. */
    aborted: () => sctp.lines.map(line => line.replace('ABORT ', '')),
    /** The processes that the monitors have started. */
    probers: () => childrenOf(monitorsPid() ?? 0),
    /** kill -9 of the monitors. Waits until others run. */
    kill: async () => {
      const before = seen.starts
      process.kill(monitorsPid()!, 'SIGKILL')
      await until(() => (seen.starts > before ? true : null))
    },
    end: async () => {
      await members.end()
      await sctp.end()
      const gone = new Promise(resolve => machine.once('exit', resolve))
      machine.kill('SIGKILL')
      await gone
      await network.end()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

/** A program that says `ready` when it is, and later other lines. */
async function startTalker(words: string[]) {
  const [program = '', ...args] = words
  const child: ChildProcess = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  const lines: string[] = []
  createInterface({ input: child.stdout! }).on('line', line => lines.push(line))
  await until(() => (lines.includes('ready') ? true : null))
  lines.length = 0
  return {
    lines,
    /** Says a word and waits until it is repeated. */
    ask: async (word: string) => {
      lines.length = 0
      child.stdin!.write(`${word}\n`)
      await until(() => (lines.includes(word) ? true : null))
    },
    end: async () => {
      const gone = new Promise(resolve => child.once('exit', resolve))
      child.kill('SIGKILL')
      await gone
    },
  }
}

function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number)
  } catch {
    return []
  }
}
