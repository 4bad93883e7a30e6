import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'

/** What amphora-traffic.ts does with UDP: members that tell who asked them, and clients. */

export type Place = { address: string; port: number }

type DatagramRequest = {
  name?: string
  address?: string
  port?: number
  from?: string
  count?: number
  /** Bytes of each datagram. */
  size?: number
}

const sockets = new Map<string, Socket>()
const ANSWER_MS = 1_000
// A port that the kernel draws may be that of a flow of a moment ago. The datagram would then belong to that flow.
const PORTS = { first: 10_240, count: 50_000 }
let opened = 0

const typeOf = (address: string) => (address.includes(':') ? 'udp6' : 'udp4')

export const datagramVerbs = {
  /** Answers each datagram with its name and the address that the datagram came from, and blanks if that was longer. */
  datagramMember: async ({ name = '', address = '', port = 0 }: DatagramRequest) => {
    const socket = createSocket(typeOf(address))
    socket.on('message', ({ length }, peer) => {
      if (peer.port === 0) return
      const answer = `${name} ${peer.address}`
      socket.send(length === 1 ? answer : answer.padEnd(length), peer.port, peer.address)
    })
    socket.bind(port, address)
    await once(socket, 'listening')
    sockets.set(`member ${address} ${port}`, socket)
  },

  endDatagramMember: async ({ address = '', port = 0 }: DatagramRequest) => {
    await close(`member ${address} ${port}`)
  },

  /**
   * Sends a datagram each from so many new ports, one after another.
   * @returns the answers; the error's code, or `silence`, where there is none
   */
  datagrams: async ({ address = '', port = 0, from, count = 1, size = 1 }: DatagramRequest) => {
    const answers: string[] = []
    for (let i = 0; i < count; i++) {
      const socket = await open({ address, port }, from)
      answers.push(await answer(socket, size))
      socket.close()
    }
    return answers
  },

  /** Opens a flow that `flow` uses. */
  openFlow: async ({ name = '', address = '', port = 0, from }: DatagramRequest) => {
    sockets.set(`flow ${name}`, await open({ address, port }, from))
  },

  /** @see datagrams */
  flow: ({ name = '' }: DatagramRequest) => answer(sockets.get(`flow ${name}`)!),

  endFlow: ({ name = '' }: DatagramRequest) => close(`flow ${name}`),
}

async function open({ address, port }: Place, from?: string): Promise<Socket> {
  const socket = createSocket(typeOf(address))
  socket.bind(PORTS.first + (opened++ % PORTS.count), from)
  await once(socket, 'listening')
  socket.connect(port, address)
  await once(socket, 'connect')
  return socket
}

function answer(socket: Socket, size = 1): Promise<string> {
  return new Promise(resolve => {
    const end = (text: string) => {
      clearTimeout(timer)
      socket.removeAllListeners('message')
      socket.removeAllListeners('error')
      socket.on('error', () => {})
      resolve(text)
    }
    const timer = setTimeout(() => end('silence'), ANSWER_MS)
    socket.on('message', bytes => end(bytes.length < size ? 'too short' : bytes.toString().trim()))
    socket.on('error', error => end((error as NodeJS.ErrnoException).code ?? error.message))
    socket.send('?'.repeat(size), error => error && end((error as NodeJS.ErrnoException).code ?? error.message))
  })
}

async function close(name: string): Promise<void> {
  const socket = sockets.get(name)
  sockets.delete(name)
  await new Promise<void>(resolve => (socket === undefined ? resolve() : socket.close(resolve)))
}
