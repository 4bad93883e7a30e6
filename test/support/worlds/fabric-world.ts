import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { randomBytes, randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { Fabric } from '../../../controller/network/local/fabric.js'
import { ip, links } from '../../../controller/network/local/ip-command.js'

const run = promisify(execFile)

/** A fabric and bare machines for one test. The teardown removes them and fails if anything remains. */
export async function createWorld(t: Test) {
  const instance = randomBytes(3).toString('hex')
  const fabric = new Fabric({ instance })
  const machines: string[] = []
  const processes: ChildProcess[] = []
  t.teardown(async () => {
    for (const child of processes) child.kill('SIGKILL')
    await fabric.remove()
    for (const machine of machines) await ip(['netns', 'delete', machine]).catch(() => undefined)
    const host = (await links(null)).map(link => link.ifname).filter(name => name.includes(instance))
    if (host.length > 0) throw new Error(`left on the host: ${host}`)
    if (existsSync(`/run/netns/krater-${instance}`)) throw new Error('the namespace remains')
  })
  return {
    instance,
    fabric,
    machine: async (name: string) => {
      const namespace = `test-${instance}-${name}`
      await ip(['netns', 'add', namespace])
      machines.push(namespace)
      await ip(['-n', namespace, 'link', 'set', 'lo', 'up'])
      return namespace
    },
    /** Runs a program in a namespace to its end. */
    run: async (namespace: string, ...words: string[]) =>
      (await run('ip', ['netns', 'exec', namespace, ...words], { timeout: 10_000 })).stdout,
    /** Runs a program in a namespace, and gives it a text to read. */
    feed: async (namespace: string, program: string, args: string[], text: string) => {
      const running = run('ip', ['netns', 'exec', namespace, program, ...args], { timeout: 10_000 })
      running.child.stdin?.end(text)
      await running
    },
    start: (namespace: string | null, program: string, args: string[]) => {
      const words = namespace === null ? [program, ...args] : ['ip', 'netns', 'exec', namespace, program, ...args]
      const child = spawn(words[0]!, words.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] })
      processes.push(child)
      return child
    },
  }
}

/** An attachment of a new port. */
export const nic = (namespace: string, networkId: string, ...addresses: string[]) => ({
  networkId,
  mtu: 1450,
  portId: randomUUID(),
  macAddress: `fa:16:3e:${randomBytes(3).toString('hex').match(/../g)!.join(':')}`,
  addresses,
  namespace,
  interfaceName: 'eth0',
})

/** Gives the interface of a machine addresses, with prefix lengths, and brings it up. */
export async function giveAddresses(namespace: string, ...addresses: string[]) {
  for (const address of addresses) {
    await ip(['-n', namespace, 'address', 'add', address, 'dev', 'eth0', ...(address.includes(':') ? ['nodad'] : [])])
  }
  await ip(['-n', namespace, 'link', 'set', 'eth0', 'up'])
}

/** Connects to a TCP server, retrying for `limitMs`. @param from the source address, if it matters @returns the server's greeting */
export async function ask(
  namespace: string | null,
  address: string,
  from = '',
  limitMs = 5000,
  port = 8080,
): Promise<string> {
  const script = `
    const until = Date.now() + ${limitMs}
    const [host, localAddress] = process.argv.slice(1)
    const connect = () => require('net').connect({ port: ${port}, host, ...(localAddress && { localAddress }) })
      .on('data', data => { process.stdout.write(data); process.exit(0) })
      .on('error', () => Date.now() < until ? setTimeout(connect, 30) : process.exit(1))
    setTimeout(() => process.exit(1), ${limitMs + 1000})
    connect()`
  const words = [
    ...(namespace === null ? [] : ['ip', 'netns', 'exec', namespace]),
    process.execPath,
    '-e',
    script,
    address,
    from,
  ]
  const { stdout } = await run(words[0]!, words.slice(1), { timeout: 10_000 })
  return stdout
}

/** Arguments of Node.js for a server on TCP port 8080 that greets and closes. It says when it listens. */
export const server = (greeting: string) => [
  '-e',
  `require('net').createServer(s => s.on('error', () => {}).end('${greeting}')).listen(8080, '::', () => console.log('ready'))`,
]
