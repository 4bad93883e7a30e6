import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createConnection, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import type { Boot } from '../../../amphora-agent/protocol/boot.js'
import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import { createFrameDecoder, encodeFrame } from '../../../amphora-agent/protocol/frames.js'
import { decodeDatagram } from '../../../amphora-agent/protocol/heartbeat/datagram.js'
import type { Beat, Report } from '../../../amphora-agent/protocol/heartbeat.js'
import type { AgentError, Answer, ApplyResult, ResultOf } from '../../../amphora-agent/protocol/messages.js'
import { seccompLauncher } from '../../../amphora-agent/seccomp/launcher.js'
import { MACHINE_RULES } from '../../../amphora-agent/seccomp/rules.js'
import { commandOf } from '../processes.js'

export const HEARTBEAT_PORT = 5555

const KEY = 'ab'.repeat(32)
/** Of every amphora here. */
export const AMPHORA_ID = '5d2f8c1e-9b1f-4f0a-8a39-6f1d2c3b4a59'
const BOOT: Boot = {
  amphoraId: AMPHORA_ID,
  heartbeatKey: KEY,
  heartbeatKeyId: 3,
  healthManagers: [{ host: '127.0.0.1', port: HEARTBEAT_PORT }],
  beatIntervalSeconds: 0.5,
}

/** A program's complaints appear in the error, and nowhere else. */
const CAPTURED = { encoding: 'utf8', stdio: 'pipe' } as const

/**
 * A memory file system on /run, and the agent, restarted whenever it ends, as a machine's init would do;
 * without the right to inspect other processes, and with the machine's system call filter on it and all that it
 * starts.
 */
const INIT = `
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
ip link set lo up
while :; do
  mkdir -p /run/krater
  install -m 600 "$1" /run/krater/boot.json || true
  setpriv --bounding-set=-sys_ptrace perl "$2" "$3" "$4" --boot /run/krater/boot.json & wait $! || true
  sleep 0.05
done
`

/**
 * The built agent with a real HAProxy in new namespaces (network, mount, processes), called over its Unix
 * socket. `destroy` ends all that the agent has started.
 */
export async function createAmphora() {
  const directory = mkdtempSync(join(tmpdir(), 'krater-amphora-'))
  await build({
    entryPoints: {
      agent: join(import.meta.dirname, '../../../amphora-agent/main.ts'),
      traffic: fileURLToPath(new URL('../clients/amphora-traffic.ts', import.meta.url)),
    },
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'cjs',
    outExtension: { '.js': '.cjs' },
    outdir: directory,
    logLevel: 'error',
  })
  writeFileSync(join(directory, 'boot.json'), JSON.stringify(BOOT), { mode: 0o600 })
  writeFileSync(join(directory, 'seccomp.pl'), seccompLauncher(MACHINE_RULES, process.arch))
  const namespaces = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc']
  const init = [
    'bash',
    '-c',
    INIT,
    'init',
    join(directory, 'boot.json'),
    join(directory, 'seccomp.pl'),
    process.execPath,
    join(directory, 'agent.cjs'),
  ]
  const console = join(directory, 'console')
  const words = openSync(console, 'w')
  const outer = spawn('unshare', [...namespaces, ...init], { stdio: ['ignore', words, words] })
  closeSync(words)
  const started = async () => {
    const pid = await until(() => childrenOf(outer.pid!)[0] ?? null)
    await until(() => existsSync(`/proc/${pid}/root/run/krater/agent.sock`) || null)
    return pid
  }
  const initPid = await started().catch(error => {
    throw new Error(`${error.message}\n${readFileSync(console, 'utf8')}`)
  })
  const trafficIn = (pid: number) => startTraffic(pid, join(directory, 'traffic.cjs'))
  const traffic = trafficIn(initPid)
  await traffic.ask('heartbeats', { port: HEARTBEAT_PORT })

  return {
    initPid,
    traffic,
    /** Web servers, requests and load in the network namespace of another process. */
    trafficIn,
    connect: () => connectAgent(`/proc/${initPid}/root/run/krater/agent.sock`),
    /** Runs a program inside all of the amphora's namespaces. */
    inside: (program: string, ...args: string[]) =>
      execFileSync('nsenter', ['-t', String(initPid), '-n', '-m', '-p', program, ...args], CAPTURED),
    readFile: (path: string) => readFileSync(`/proc/${initPid}/root${path}`, 'utf8'),
    fileExists: (path: string) => existsSync(`/proc/${initPid}/root${path}`),
    /** kill -9 of the agent. Waits until it has ended; its successor may already run. */
    killAgent: async () => {
      const pids = agentPids(initPid)
      for (const pid of pids) process.kill(pid, 'SIGKILL')
      await until(() => !pids.some(pid => existsSync(`/proc/${pid}`)) || null)
    },
    /** Stops the agent without ending it. */
    freezeAgent: () => {
      for (const pid of agentPids(initPid)) process.kill(pid, 'SIGSTOP')
    },
    /** Asks the agent to end. */
    stopAgent: () => {
      for (const pid of agentPids(initPid)) process.kill(pid, 'SIGTERM')
    },
    /** Powers the machine off: everything in it ends at once. */
    destroy: async () => {
      traffic.end()
      const gone = new Promise(resolve => outer.once('exit', resolve))
      outer.kill('SIGKILL')
      await gone
      await until(() => !existsSync(`/proc/${initPid}`) || null)
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

/** A new network namespace for a client or a gateway, until it is ended. */
export function createNamespace() {
  const holder = spawn('unshare', ['--net', 'bash', '-c', 'ip link set lo up; echo ready; exec sleep infinity'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ready = new Promise<void>(resolve => holder.stdout.once('data', () => resolve()))
  return {
    ready,
    pid: holder.pid!,
    ip: (...args: string[]) => execFileSync('nsenter', ['-t', String(holder.pid), '-n', 'ip', ...args], CAPTURED),
    end: async () => {
      const gone = new Promise(resolve => holder.once('exit', resolve))
      holder.kill('SIGKILL')
      await gone
    },
  }
}

/** One connection to the agent, which may break at any time. */
export async function connectAgent(path: string) {
  const socket = await until(() => tryConnect(path))
  const decode = createFrameDecoder()
  const waiting = new Map<number, (answer: Answer) => void>()
  const lost = new Promise<never>((_, reject) => {
    socket.on('close', () => reject(new Error('the connection to the agent is lost')))
  })
  lost.catch(() => {})
  socket.on('error', () => {})
  socket.on('data', (piece: Buffer) => {
    for (const value of decode(piece)) {
      const answer = value as Answer
      waiting.get(answer.id)?.(answer)
    }
  })
  let lastId = 0
  const send = (request: Record<string, unknown>): Promise<Answer> => {
    const id = ++lastId
    const answered = new Promise<Answer>(resolve => waiting.set(id, resolve))
    socket.write(encodeFrame({ id, ...request }))
    return Promise.race([answered, lost])
  }
  const ask = async <V extends 'hello' | 'status' | 'logs'>(verb: V, rest = {}): Promise<ResultOf[V]> => {
    const answer = await send({ verb, ...rest })
    if (!answer.ok) throw new Error(JSON.stringify(answer.error))
    return answer.result as ResultOf[V]
  }
  return {
    socket,
    lost,
    send,
    ask,
    /** @throws Error with the agent's message when it refuses */
    apply: async (desired: Desired): Promise<ApplyResult> => {
      const answer = await send({ verb: 'apply', desired })
      if (!answer.ok) throw new Error(`${JSON.stringify(answer.error)}`)
      return answer.result as ApplyResult
    },
    /** @throws Error when the agent does not refuse */
    refusal: async (desired: Desired): Promise<AgentError> => {
      const answer = await send({ verb: 'apply', desired })
      if (answer.ok) throw new Error(`applied: ${JSON.stringify(answer.result)}`)
      return answer.error
    },
    end: () => socket.destroy(),
  }
}

/** Checks repeatedly until there is a result. @throws Error after the time limit */
export async function until<T>(probe: () => T | null | Promise<T | null>, timeoutMs = 15_000): Promise<T> {
  const end = performance.now() + timeoutMs
  for (;;) {
    const value = await probe()
    if (value !== null) return value
    if (performance.now() > end) throw new Error(`no result within ${timeoutMs} ms: ${probe}`)
    await pause(20)
  }
}

function startTraffic(initPid: number, program: string) {
  const child: ChildProcess = spawn('nsenter', ['-t', String(initPid), '-n', process.execPath, program], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const waiting = new Map<number, (message: { result: unknown; error?: string }) => void>()
  const received: (Beat | Report)[] = []
  createInterface({ input: child.stdout! }).on('line', line => {
    const message = JSON.parse(line)
    if (message.heartbeat !== undefined) {
      const key = Buffer.from(KEY, 'hex')
      const decoded = decodeDatagram(Buffer.from(message.heartbeat, 'hex'), () => key)
      if (decoded === null) throw new Error('a heartbeat cannot be read')
      received.push(decoded)
    } else waiting.get(message.id)?.(message)
  })
  let lastId = 0
  const ask = <T>(verb: string, rest: object = {}): Promise<T> => {
    const id = ++lastId
    return new Promise((resolve, reject) => {
      waiting.set(id, message =>
        message.error === undefined ? resolve(message.result as T) : reject(new Error(message.error)),
      )
      child.stdin!.write(`${JSON.stringify({ id, verb, ...rest })}\n`)
    })
  }
  return {
    ask,
    get: (url: string, from?: string, headers?: Record<string, string>) =>
      ask<{ status: number; body: string; cookies: string[] }>('get', { url, from, headers }),
    /** All heartbeats and reports so far, in order of arrival. */
    received,
    reports: () => received.filter((message): message is Report => message.kind === 'report'),
    beats: () => received.filter((message): message is Beat => message.kind === 'beat'),
    end: () => child.stdin!.end(),
  }
}

function tryConnect(path: string): Promise<Socket | null> {
  return new Promise(resolve => {
    const socket = createConnection(path)
    socket.once('connect', () => resolve(socket))
    socket.once('error', () => resolve(null))
  })
}

function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number)
  } catch {
    return []
  }
}

function agentPids(initPid: number): number[] {
  return childrenOf(initPid).filter(pid => commandOf(pid).includes('agent.cjs'))
}
