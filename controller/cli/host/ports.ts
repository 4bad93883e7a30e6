import { execFile } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { createServer } from 'node:net'
import { promisify } from 'node:util'
import type { Fault } from '../faults/fault.js'
import { reasonOf } from '../faults/system-fault.js'

const run = promisify(execFile)

export type Listener = {
  what: string
  /** The settings that have `host` and, unless `portSetting` names another setting, `port`. */
  setting: string
  portSetting?: string
  /** The setting that names `host`, unless it is that of `setting`. */
  hostSetting?: string
  protocol: 'tcp' | 'udp'
  host: string
  port: number
}

/** A fault for each address on which the service cannot listen; none when all are free and differ. */
export async function takenPorts(listeners: readonly Listener[]): Promise<Fault[]> {
  const shared = listeners.map((listener, at) => listeners.slice(0, at).find(other => isSameAddress(listener, other)))
  const faults = listeners.flatMap((listener, at) => {
    const other = shared[at]
    return other === undefined ? [] : [describeShared(other, listener)]
  })
  return [...faults, ...(await takenByOthers(listeners.filter((_, at) => shared[at] === undefined)))]
}

/** Whether only one of two listeners can have its port. */
function isSameAddress(one: Listener, other: Listener): boolean {
  if (one.protocol !== other.protocol || one.port !== other.port) return false
  return one.host === other.host || [one.host, other.host].some(host => WILDCARDS.includes(host))
}

function describeShared(one: Listener, other: Listener): Fault {
  return {
    what: `${portSettingOf(one)} and ${portSettingOf(other)} are both ${other.port}, but ${one.what} and ${other.what} need a port each`,
    remedy: `Set another ${describeSetting(other)} or ${describeSetting(one)}`,
  }
}

const portSettingOf = ({ setting, portSetting }: Listener): string => portSetting ?? `${setting}.port`

/** A setting with its variable: `identity.port (KRATER_IDENTITY_PORT)`. */
function describeSetting(listener: Listener): string {
  const setting = portSettingOf(listener)
  return `${setting} (KRATER_${setting.replaceAll('.', '_').toUpperCase()})`
}

async function takenByOthers(listeners: readonly Listener[]): Promise<Fault[]> {
  const found = await Promise.all(
    listeners.map(async listener => {
      const code = await tryToListen(listener)
      return code === null ? [] : [await describeTaken(listener, code)]
    }),
  )
  return found.flat()
}

async function describeTaken(listener: Listener, code: string): Promise<Fault> {
  const { what, setting, hostSetting = `${setting}.host`, protocol, host, port } = listener
  if (code === 'EADDRINUSE') {
    const holder = await holderOf(protocol, host, port)
    return {
      what: `Port ${port}/${protocol} on ${host}, needed for ${what}, is taken${holder}`,
      remedy: `Free it (ss -lp${protocol[0]} 'sport = :${port}' shows who has it), or set another ${describeSetting(listener)}`,
    }
  }
  if (code === 'EADDRNOTAVAIL') {
    return {
      what: `Cannot listen on ${host} for ${what}: this machine does not have that address`,
      remedy: `Set ${hostSetting} to one that \`ip address\` shows`,
    }
  }
  return {
    what: `Cannot listen on ${host} port ${port}/${protocol} for ${what}: ${reasonOf(code)} (${code})`,
    remedy: `Set another ${hostSetting} or ${describeSetting(listener)}`,
  }
}

/** ` by haproxy (pid 17)`, or '' when unknown. A listener on the same port of another address does not conflict. */
async function holderOf(protocol: 'tcp' | 'udp', host: string, port: number): Promise<string> {
  const { stdout } = await run('ss', ['-H', '-n', '-l', '-p', protocol === 'tcp' ? '-t' : '-u', `sport = :${port}`], {
    timeout: 5_000,
  }).catch(() => ({ stdout: '' }))
  // ss prints addresses, so resolve a host name before comparing.
  const family = protocol === 'udp' && !host.includes(':') ? 4 : 0
  const tried = await lookup(host, { family }).then(
    ({ address }) => address,
    () => host,
  )
  const conflicting = stdout.split('\n').filter(line => {
    const [, , , local = ''] = line.trim().split(/\s+/)
    const address = local.slice(0, local.lastIndexOf(':')).replaceAll(/[[\]]|%.*/g, '')
    return address === tried || WILDCARDS.includes(address) || WILDCARDS.includes(tried)
  })
  // Children that a process has just forked hold its sockets too, until they start their own program.
  const [holder] = [...conflicting.join('\n').matchAll(/\("([^"]*)",pid=(\d+)/g)]
    .map(([, name, pid]) => ({ name, pid: Number(pid) }))
    .sort((a, b) => a.pid - b.pid)
  return holder === undefined ? '' : ` by ${holder.name} (pid ${holder.pid})`
}

const WILDCARDS: readonly string[] = ['0.0.0.0', '::', '*']

function tryToListen({ protocol, host, port }: Listener): Promise<string | null> {
  return new Promise(resolve => {
    const answer = (error: unknown) => resolve((error as NodeJS.ErrnoException).code ?? String(error))
    if (protocol === 'tcp') {
      const server = createServer()
      server.once('error', answer)
      server.listen(port, host, () => server.close(() => resolve(null)))
    } else {
      const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4')
      socket.once('error', error => {
        socket.close()
        answer(error)
      })
      socket.bind(port, host, () => socket.close(() => resolve(null)))
    }
  })
}
