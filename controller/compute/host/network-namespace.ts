import { spawn } from 'node:child_process'
import { existsSync, readlinkSync, statSync } from 'node:fs'
import { ip, ipBatch } from '../../network/local/ip-command.js'
import { removeNamespace } from '../../network/local/namespace.js'

const DIRECTORY = '/run/netns'
/** Longer than a start with all its commands takes. */
const KEEPER_LIMIT_MS = 60_000

/** A process that keeps new namespaces alive until another process joins them. */
export type Keeper = { pid: number; end: () => void }

/** A named network namespace, like those of `ip netns`. */
export function networkNamespace(name: string) {
  const file = `${DIRECTORY}/${name}`
  return {
    name,
    file,

    exists: () => existsSync(file),

    /**
     * Always creates a new namespace, without an earlier machine's leftovers (addresses, rules). It belongs to a
     * new user namespace, so capabilities inside cover no other network.
     * @returns a process in both namespaces
     */
    make: async (): Promise<Keeper> => {
      await removeNamespace(name)
      const keeper = await keepNamespaces()
      const words = ['netns', 'attach', name, `${keeper.pid}`]
      try {
        await ip(words).catch(async error => {
          // The command of a creator that died may still have been running.
          if (!existsSync(file)) throw error
          await removeNamespace(name)
          await ip(words)
        })
        return keeper
      } catch (error) {
        keeper.end()
        throw error
      }
    },

    remove: () => removeNamespace(name),

    /** True if a process is in it; false also if the name is gone or belongs to another namespace. */
    holds: (pid: number): boolean => {
      try {
        return readlinkSync(`/proc/${pid}/ns/net`) === `net:[${statSync(file).ino}]`
      } catch {
        return false
      }
    },

    /** Sets an interface's addresses (with prefix lengths), and brings it and the loopback interface up. */
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
 * Pending timers and signals also count against the creator of the user namespace, whose limit becomes the
 * namespace's. It is lifted so that one amphora cannot use up what all share.
 */
const KEEPER_COMMAND = 'ulimit -i unlimited 2>/dev/null || ulimit -Si hard; exec unshare --user --net cat'

/** @throws Error if the kernel permits no user namespaces, or no more of them */
function keepNamespaces(): Promise<Keeper> {
  return new Promise((resolve, reject) => {
    const child = spawn('/bin/bash', ['-c', KEEPER_COMMAND], {
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
      timeout: KEEPER_LIMIT_MS,
      killSignal: 'SIGKILL',
    })
    let complaints = ''
    child.stderr.on('data', piece => {
      complaints += piece
    })
    child.stdin.on('error', () => undefined)
    // An echo proves that it runs inside the namespaces.
    child.stdin.write('\n')
    child.stdout.once('data', () => resolve({ pid: child.pid!, end: () => child.kill('SIGKILL') }))
    child.once('error', reject)
    child.once('close', () =>
      reject(
        new Error(
          `Creating namespaces for a machine failed: ${complaints.trim() || 'unshare ended'}. Run krater doctor.`,
        ),
      ),
    )
  })
}
