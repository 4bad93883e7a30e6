import { existsSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { ip, ipBatch } from '../../network/local/ip-command.js'

const DIRECTORY = '/run/netns'

/** A named network namespace, as `ip netns` makes them. */
export function networkNamespace(name: string) {
  const file = `${DIRECTORY}/${name}`
  return {
    name,
    file,

    exists: () => existsSync(file),

    /** Always a new one: what an earlier machine left in its own (addresses, rules) is gone. */
    make: async () => {
      await remove(name, file)
      await ip(['netns', 'add', name]).catch(async error => {
        // The command of a creator that died may still have been under way.
        if (!existsSync(file)) throw error
        await remove(name, file)
        await ip(['netns', 'add', name])
      })
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

    /** Gives a card its addresses (with prefix lengths), and brings it and the loopback up. */
    configure: async (card: string, addresses: readonly string[]) => {
      const failure = await ipBatch(name, [
        'link set dev lo up',
        ...addresses.map(address => `address replace ${address} dev ${card}${address.includes(':') ? ' nodad' : ''}`),
        `link set dev ${card} up`,
      ])
      if (failure !== null) throw failure
    },
  }
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
