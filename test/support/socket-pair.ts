import type { Socket } from 'node:net'

/**
 * Makes two sockets of a proxy end together, whichever breaks.
 * @param open contains both while they are open
 */
export function endTogether(one: Socket, other: Socket, open: Set<Socket>): void {
  for (const [socket, peer] of [
    [one, other],
    [other, one],
  ] as const) {
    open.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => {
      open.delete(socket)
      peer.destroy()
    })
  }
}
