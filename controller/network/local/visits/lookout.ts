import { execFile, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import type { Logger } from '../../../log/log.js'
import type { Answer, Answers, NetworkDriver, Subnet } from '../../driver.js'
import type { Fabric } from '../fabric.js'
import { linkNamed } from '../ip-command.js'
import { uplinkFabricEnd } from '../uplink-frames.js'
import { admitVisitor } from './visitor.js'

const run = promisify(execFile)

/** Until there is a namespace, on a busy host. */
const NAMESPACE_MS = 3_000
/** Three echo requests, and what starting them takes on a busy host. */
const PING_MS = 5_000

type Lookout = { fabric: Fabric; driver: NetworkDriver; log: Logger }

/**
 * Looks from a place of its own on a subnet who is there.
 * @param addresses on the subnet
 * @returns what each does; null if the network leads to no other host from here
 * @throws NoAddressLeft, IpCommandError, or another Error if there is no such place
 */
export async function whoAnswers(
  { fabric, driver, log }: Lookout,
  subnet: Subnet,
  addresses: readonly string[],
): Promise<Answers | null> {
  if ((await linkNamed(fabric.namespace, uplinkFabricEnd(subnet.networkId))) === null) return null
  // It ends with its input, and so with this process.
  const holder = spawn('unshare', ['--net', 'cat'], { stdio: ['pipe', 'pipe', 'ignore'] })
  const ended = once(holder, 'close')
  try {
    holder.stdin.on('error', () => undefined)
    // An echo proves that it is in the namespace.
    holder.stdin.write('\n')
    const echo = once(holder.stdout, 'data', { signal: AbortSignal.timeout(NAMESPACE_MS) }).catch(() =>
      Promise.reject(new Error('unshare has made no network namespace in time')),
    )
    await Promise.race([echo, ended.then(() => Promise.reject(new Error('unshare ended')))])
    const pid = holder.pid ?? 0
    const { projectId } = subnet
    const leave = await admitVisitor(fabric, driver, { id: randomUUID(), pid, projectId, subnet })
    try {
      return new Map(
        await Promise.all(addresses.map(async address => [address, await ping({ pid, address, log })] as const)),
      )
    } finally {
      // What was seen counts nevertheless, and what is left is removed later.
      await leave().catch((error: unknown) => log.warn({ err: error }, 'leaving a network after a look at it failed'))
    }
  } finally {
    holder.kill('SIGKILL')
    await Promise.race([ended.catch(() => undefined), sleep(NAMESPACE_MS, undefined, { ref: false })])
  }
}

/** @param pid of a process in the network namespace to ask from */
async function ping({ pid, address, log }: { pid: number; address: string; log: Logger }): Promise<Answer> {
  const words = ['-t', `${pid}`, '-n', 'ping', '-n', '-q', '-c', '3', '-i', '0.3', '-W', '1', address]
  try {
    await run('nsenter', words, { timeout: PING_MS })
    return 'answers'
  } catch (error) {
    const { code, stdout } = error as { code?: unknown; stdout?: string }
    // With the same status, nsenter says that it did not come to ping, which would have written something.
    if (code === 1 && stdout !== '') return 'silent'
    log.warn({ err: error, address }, 'asking an address for an echo failed')
    return 'unknown'
  }
}
