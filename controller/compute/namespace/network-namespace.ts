import { spawn } from 'node:child_process'
import { existsSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { ip, ipBatch } from '../../network/local/ip-command.js'

const DIRECTORY = '/run/netns'
/** A start takes less, with all its commands. */
const KEEPER_LIMIT_MS = 60_000

/** A process that keeps new namespaces until something else lives in them. */
export type Keeper = { pid: number; end: () => void }

/** A named network namespace, as `ip netns` makes them. */
export function networkNamespace(name: string) {
  const file = `${DIRECTORY}/${name}`
  return {
    name,
    file,

    exists: () => existsSync(file),

    /**
     * Always a new one: what an earlier machine left in its own (addresses, rules) is gone. It belongs to a new user namespace: rights over
     * networks that somebody has in there end with this network.
     * @returns a process in both
     */
    make: async (): Promise<Keeper> => {
      await remove(name, file)
      const keeper = await keepNamespaces()
      const words = ['netns', 'attach', name, `${keeper.pid}`]
      try {
        await ip(words).catch(async error => {
          // The command of a creator that died may still have been under way.
          if (!existsSync(file)) throw error
          await remove(name, file)
          await ip(words)
        })
        return keeper
      } catch (error) {
        keeper.end()
        throw error
      }
    },

    remove: () => remove(name, file),

    /** Whether a process lives in it. False also when the name is gone or stands for another namespace by now. */
    holds: (pid: number): boolean => {
      try {
        return readlinkSync(`/proc/${pid}/ns/net`) === `net:[${statSync(file).ino}]`
      } catch {
        return false
      }
    },

    /** Gives an interface its addresses (with prefix lengths), and brings it and the loopback up. */
    configure: async (nic: string, addresses: readonly string[]) => {
      const failure = await ipBatch(name, [
        'link set dev lo up',
        ...addresses.map(address => `address replace ${address} dev ${nic}${address.includes(':') ? ' nodad' : ''}`),
        `link set dev ${nic} up`,
      ])
      if (failure !== null) throw failure
    },
  }
}

/**
 * Timers and signals that wait count for the user namespace's maker too. Its limit becomes the namespace's: were it not lifted, one amphora could
 * use up what all share.
 */
const KEEP = 'ulimit -i unlimited 2>/dev/null || ulimit -Si hard; exec unshare --user --net cat'

/** @throws Error when the kernel permits no user namespaces, or none more */
function keepNamespaces(): Promise<Keeper> {
  return new Promise((resolve, reject) => {
    const child = spawn('/bin/bash', ['-c', KEEP], {
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
      timeout: KEEPER_LIMIT_MS,
      killSignal: 'SIGKILL',
    })
    let complaints = ''
    child.stderr.on('data', piece => {
      complaints += piece
    })
    child.stdin.on('error', () => undefined)
    // What it answers, it answers from inside.
    child.stdin.write('\n')
    child.stdout.once('data', () => resolve({ pid: child.pid!, end: () => child.kill('SIGKILL') }))
    child.once('error', reject)
    child.once('close', () =>
      reject(new Error(`No namespaces for a machine: ${complaints.trim() || 'unshare ended'}; see krater doctor`)),
    )
  })
}

/** Names of the network namespaces that begin with `prefix`. */
export function namespacesNamed(prefix: string): string[] {
  return existsSync(DIRECTORY) ? readdirSync(DIRECTORY).filter(name => name.startsWith(prefix)) : []
}

async function remove(name: string, file: string): Promise<void> {
  if (!existsSync(file)) return
  await ip(['netns', 'delete', name]).catch(error => {
    if (existsSync(file)) throw error
  })
}
