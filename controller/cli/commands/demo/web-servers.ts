import { execFile, spawn } from 'node:child_process'
import { closeSync, existsSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Fabric } from '../../../network/local/fabric.js'
import { writePrivateFile } from '../../../process/private-file.js'
import {
  endProcesses,
  findProcesses,
  identityOf,
  isAlive,
  type ProcessIdentity,
} from '../../../process/process-identity.js'
import { logFile, openLog } from '../../host/log-files.js'

const run = promisify(execFile)

export const WEB_SERVERS = ['web-1', 'web-2'] as const
export type WebServerName = (typeof WEB_SERVERS)[number]
export const WEB_PORT = 8080

/** A web server of the demo: a port of the tenant network in a network namespace. */
export type WebServer = {
  name: WebServerName
  portId: string
  networkId: string
  mtu: number
  macAddress: string
  address: string
  prefix: number
}

const program = join(dirname(fileURLToPath(import.meta.url)), 'demo-web-server.js')
const namespaceOf = (instanceId: string, name: string): string => `krater-${instanceId}-${name}`
const recordOf = (directory: string, name: string): string => join(directory, 'run', `demo-${name}.pid`)

/** Starts a web server in its namespace. @returns true when it was already running */
export async function ensureWebServer(
  { directory, instanceId, fabric }: { directory: string; instanceId: string; fabric: Fabric },
  server: WebServer,
): Promise<boolean> {
  const namespace = namespaceOf(instanceId, server.name)
  const ip = (...args: string[]) => run('ip', args, { timeout: 10_000 })
  if (!existsSync(`/run/netns/${namespace}`)) await ip('netns', 'add', namespace)
  await ip('-n', namespace, 'link', 'set', 'lo', 'up')
  await fabric.attach({ ...server, addresses: [server.address], namespace, interfaceName: 'eth0' })
  await ip('-n', namespace, 'addr', 'replace', `${server.address}/${server.prefix}`, 'dev', 'eth0')
  await ip('-n', namespace, 'link', 'set', 'eth0', 'up')
  const record = recordOf(directory, server.name)
  const running = readIdentity(record)
  if (running !== null && isAlive(running)) return true
  const log = openLog(logFile(directory, `demo-${server.name}`))
  const child = spawn('ip', ['netns', 'exec', namespace, process.execPath, program, server.name, String(WEB_PORT)], {
    cwd: '/',
    detached: true,
    stdio: ['ignore', log, log],
  })
  closeSync(log)
  child.on('error', () => undefined)
  child.unref()
  const identity = child.pid === undefined ? null : identityOf(child.pid)
  if (identity !== null) writePrivateFile(record, JSON.stringify(identity))
  return false
}

/** Stops the web servers and removes their namespaces; no error when there are none. */
export async function removeWebServers(directory: string, instanceId: string): Promise<void> {
  const namespaces = WEB_SERVERS.map(name => namespaceOf(instanceId, name)).filter(name =>
    existsSync(`/run/netns/${name}`),
  )
  const inside = await Promise.all(
    namespaces.map(async namespace => {
      const { stdout } = await run('ip', ['netns', 'pids', namespace], { timeout: 10_000 }).catch(() => ({
        stdout: '',
      }))
      return stdout.split('\n').filter(Boolean).map(Number)
    }),
  )
  const pids = new Set(inside.flat())
  await endProcesses(
    findProcesses((_argv, pid) => pids.has(pid)),
    { graceMs: 2_000 },
  )
  for (const namespace of namespaces) await run('ip', ['netns', 'delete', namespace], { timeout: 10_000 })
  for (const name of WEB_SERVERS) rmSync(recordOf(directory, name), { force: true })
}

function readIdentity(path: string): ProcessIdentity | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as ProcessIdentity
  } catch {
    return null
  }
}
