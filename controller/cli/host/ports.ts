import { execFile } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { createServer } from 'node:net'
import { promisify } from 'node:util'

const run = promisify(execFile)

export type Listener = { what: string; setting: string; protocol: 'tcp' | 'udp'; host: string; port: number }

/** One message for each address on which we cannot listen; none when all are free. */
export async function takenPorts(listeners: readonly Listener[]): Promise<string[]> {
  const found = await Promise.all(
    listeners.map(async listener => {
      const code = await tryToListen(listener)
      return code === null ? [] : [await describeTaken(listener, code)]
    }),
  )
  return found.flat()
}

async function describeTaken({ what, setting, protocol, host, port }: Listener, code: string): Promise<string> {
  const variable = `KRATER_${setting.toUpperCase()}_PORT`
  if (code === 'EADDRINUSE') {
    const holder = await holderOf(protocol, host, port)
    return `Port ${port}/${protocol} on ${host}, needed for ${what}, is taken${holder}. Free it, or choose another with ${setting}.port (${variable}).`
  }
  if (code === 'EADDRNOTAVAIL') {
    return `${host}, on which ${what} should listen, is no address of this machine. Change ${setting}.host.`
  }
  return `${what} cannot listen on ${host} port ${port}/${protocol}: ${code}.`
}

/** ` by haproxy (pid 17)`, or nothing when unknown. A listener on the same port of another address does not conflict. */
async function holderOf(protocol: 'tcp' | 'udp', host: string, port: number): Promise<string> {
  const { stdout } = await run('ss', ['-H', '-n', '-l', '-p', protocol === 'tcp' ? '-t' : '-u', `sport = :${port}`], {
    timeout: 5_000,
  }).catch(() => ({ stdout: '' }))
  // Compare with the address that was tried, not with its name.
  const family = protocol === 'udp' && !host.includes(':') ? 4 : 0
  const tried = await lookup(host, { family }).then(
    ({ address }) => address,
    () => host,
  )
  const inTheWay = stdout.split('\n').filter(line => {
    const [, , , local = ''] = line.trim().split(/\s+/)
    const address = local.slice(0, local.lastIndexOf(':')).replaceAll(/[[\]]|%.*/g, '')
    return address === tried || EVERY_ADDRESS.includes(address) || EVERY_ADDRESS.includes(tried)
  })
  const holder = /users:\(\("([^"]*)",pid=(\d+)/.exec(inTheWay.join('\n'))
  return holder === null ? '' : ` by ${holder[1]} (pid ${holder[2]})`
}

const EVERY_ADDRESS: readonly string[] = ['0.0.0.0', '::', '*']

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
