import { execFile, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { promisify } from 'node:util'
import type { NetworkDriver, Subnet } from '../driver.js'
import type { Fabric } from './fabric.js'
import { admitVisitor } from './visitor.js'

const run = promisify(execFile)

/** Three echo requests, and what starting them takes on a busy host. */
const PING_MS = 5_000

/**
 * Looks from a place of its own on a subnet who is there.
 * @param addresses on the subnet
 * @returns those that answer echo requests
 * @throws NoAddressLeft, IpCommandError
 */
export async function whoAnswers(
  fabric: Fabric,
  driver: NetworkDriver,
  { projectId, subnet }: { projectId: string; subnet: Subnet },
  addresses: readonly string[],
): Promise<string[]> {
  // It ends with its input, and so with this process.
  const holder = spawn('unshare', ['--net', 'cat'], { stdio: ['pipe', 'pipe', 'ignore'] })
  const ended = once(holder, 'close')
  try {
    holder.stdin.on('error', () => undefined)
    // An echo proves that it is in the namespace.
    holder.stdin.write('\n')
    await Promise.race([once(holder.stdout, 'data'), ended.then(() => Promise.reject(new Error('unshare ended')))])
    const pid = holder.pid ?? 0
    const leave = await admitVisitor(fabric, driver, { id: randomUUID(), pid, projectId, subnet })
    try {
      const answers = await Promise.all(addresses.map(async address => ((await pings(pid, address)) ? [address] : [])))
      return answers.flat()
    } finally {
      await leave()
    }
  } finally {
    holder.kill('SIGKILL')
    await ended.catch(() => undefined)
  }
}

const pings = (pid: number, address: string): Promise<boolean> =>
  run('nsenter', ['-t', `${pid}`, '-n', 'ping', '-n', '-q', '-c', '3', '-i', '0.3', '-W', '1', address], {
    timeout: PING_MS,
  }).then(
    () => true,
    () => false,
  )
