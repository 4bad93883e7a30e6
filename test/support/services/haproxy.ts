import { execFile, spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { challengesText } from '../../../amphora-agent/haproxy/challenges.js'
import type { HaproxyPart } from '../../../amphora-agent/protocol/desired.js'
import {
  CHALLENGES_FILE,
  HAPROXY_CHROOT,
  HAPROXY_METRICS_SOCKET,
  HAPROXY_SERVER_STATE_FILE,
  HAPROXY_SOCKET,
  METRICS_PROXY,
} from '../../../amphora-agent/protocol/paths.js'
import { provideTls } from '../../../amphora-agent/tls/files.js'
import { type KeyManager, MaterialUnavailable } from '../../../amphora-agent/tls/key-manager.js'

/** What HAProxy reads beside its own file. */
type Files = Pick<HaproxyPart, 'tls' | 'challenges'> & {
  /** What the references lead to, as assembled by the agent; others are placeholders. */
  material?: ReadonlyMap<string, string>
}

/** Checks a configuration with HAProxy; every message except notices is a complaint. */
export async function checkWithHaproxy(
  directory: string,
  text: string,
  files: Files = {},
): Promise<{ code: number; complaints: string[] }> {
  const { code, output } = await run(
    'haproxy',
    ['-c', '-f', await writeConfiguration(directory, text, files)],
    directory,
  )
  const complaints = output.split('\n').filter(line => /^\[(WARNING|ALERT)\]|^ {3}\|/.test(line))
  return { code, complaints }
}

/** The frontends and backends of many configurations in one file, with the peers that some of them name. */
export function asOneFile(parts: readonly Pick<HaproxyPart, 'text' | 'tls'>[]): Pick<HaproxyPart, 'text' | 'tls'> {
  const texts = parts.map(({ text }) => text)
  const head = texts.find(text => text.includes('\npeers ')) ?? texts[0] ?? ''
  const sections = texts.map(text => text.slice(text.indexOf('\nfrontend '), endOf(text)))
  const metrics = texts.find(text => text.includes(METRICS))
  const files = new Map(parts.flatMap(({ tls }) => (tls?.files ?? []).map(file => [file.path, file])))
  return {
    text: head.slice(0, head.indexOf('\nfrontend ')) + sections.join('') + (metrics?.slice(endOf(metrics)) ?? ''),
    tls: { files: [...files.values()], lists: parts.flatMap(({ tls }) => tls?.lists ?? []) },
  }
}

/** The proxies that carry metrics come last, and have the same names in all configurations. */
const METRICS = `\nfrontend ${METRICS_PROXY}\n`
const endOf = (text: string) => (text.includes(METRICS) ? text.indexOf(METRICS) : text.length)

const NO_KEY_MANAGER: KeyManager = {
  read: async () => {
    throw new MaterialUnavailable('there is no key manager')
  },
  lend: () => undefined,
  credential: () => null,
  close: () => undefined,
}

/**
 * With the files of an amphora in the given directory. The state file is the agent's for a first start, and so are the
 * files of TLS that the material has not, while the key manager is away.
 */
async function writeConfiguration(directory: string, text: string, files: Files): Promise<string> {
  await provideTls(NO_KEY_MANAGER, files, directory, null)
  for (const { path, ref } of files.tls?.files ?? []) {
    const pem = files.material?.get(ref)
    if (pem !== undefined) writeFileSync(join(directory, path), pem, { mode: 0o600 })
  }
  writeFileSync(join(directory, CHALLENGES_FILE), challengesText(files.challenges))
  const file = join(directory, 'haproxy.cfg')
  const stateFile = join(directory, 'server-state')
  writeFileSync(stateFile, '1\n')
  writeFileSync(
    file,
    text
      .replace(HAPROXY_SERVER_STATE_FILE, stateFile)
      .replace(HAPROXY_SOCKET, join(directory, 'haproxy.sock'))
      .replace(HAPROXY_METRICS_SOCKET, join(directory, 'metrics.sock'))
      .replace(HAPROXY_CHROOT, directory),
  )
  return file
}

/** Runs a program that ends by itself. @returns its status, -1 when it did not start, and all its output */
export function run(file: string, args: string[], cwd?: string): Promise<{ code: number; output: string }> {
  return new Promise(resolve => {
    execFile(file, args, { cwd, timeout: 30_000 }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), output: stdout + stderr })
    })
  })
}

/** HAProxy with a rendered configuration, with its files in the given directory; the caller must stop it. */
export async function startHaproxy(directory: string, text: string, files: Files = {}) {
  const file = await writeConfiguration(directory, text, files)
  const child = spawn('haproxy', ['-db', '-f', file], { cwd: directory, stdio: ['ignore', 'ignore', 'pipe'] })
  const messages: string[] = []
  child.stderr.on('data', (data: Buffer) => messages.push(data.toString()))
  const ended = new Promise(resolve => child.once('exit', resolve))
  const command = (line: string) =>
    new Promise<string>((resolve, reject) => {
      const socket = connect(join(directory, 'haproxy.sock'), () => socket.write(`${line}\n`))
      const chunks: Buffer[] = []
      socket.setTimeout(5_000, () => socket.destroy(new Error('haproxy does not answer')))
      socket.on('data', chunk => chunks.push(chunk))
      socket.once('end', () => resolve(Buffer.concat(chunks).toString()))
      socket.once('error', reject)
    })
  const answers = () =>
    command('show info').then(
      () => true,
      () => false,
    )
  if (!(await until(answers, 10_000))) throw new Error(`haproxy did not start: ${messages.join('')}`)
  return {
    pid: child.pid ?? 0,
    /** Sends a command to the runtime socket. */
    command,
    stop: async () => {
      child.kill('SIGKILL')
      await ended
    },
  }
}

/** @returns whether it became true in time */
export async function until(isDone: () => boolean | Promise<boolean>, milliseconds: number): Promise<boolean> {
  const end = Date.now() + milliseconds
  while (!(await isDone())) {
    if (Date.now() > end) return false
    await delay(20)
  }
  return true
}
