import { closeSync, constants, openSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { basename, dirname } from 'node:path'

/**
 * Connects to a Unix socket. A socket's path may have 107 characters only, but this one may be longer.
 * @returns the socket, and what ends it
 * @throws Error if its directory cannot be opened; other failures are events of the socket
 */
export function openUnixSocket(path: string): { socket: Socket; close: () => void } {
  const directory = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY)
  const socket = connect(`/proc/self/fd/${directory}/${basename(path)}`)
  return {
    socket,
    close: () => {
      socket.destroy()
      closeSync(directory)
    },
  }
}
