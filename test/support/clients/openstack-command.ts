import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { testDirectory } from '../database/database.js'
import { clientPython, type OpenstackSession, openstackSessionIn } from './openstack-session.js'

type Environment = Record<string, string>
type Request = { argv: string[]; environment: Environment }

/** Hands its words and its user to the process that has the client loaded. */
const program = (python: string, socket: string) => `#!${python} -IS
import json, os, socket, sys
user = {name: value for name, value in os.environ.items() if name.startswith('OS_')}
with socket.socket(socket.AF_UNIX) as service:
    service.connect(${JSON.stringify(socket)})
    service.sendall(json.dumps({'argv': sys.argv[1:], 'environment': user}).encode() + b'\\n')
    answer = json.load(service.makefile())
sys.stdout.write(answer['stdout'])
sys.stderr.write(answer['stderr'])
sys.exit(answer['status'])
`

/**
 * Puts an `openstack` into a directory, for shells that run many commands. It is the real client, but started once per
 * user instead of once per command, which takes seconds. So it reads no standard input, knows only OS_* of the shell's
 * environment, takes no global options, and `--wait` asks every 50 ms.
 * @param directory for PATH. Its path is short: it holds a Unix socket
 */
export async function installOpenstack(t: Test, directory: string): Promise<void> {
  const socketFile = join(directory, 'openstack.socket')
  const sessions = new Map<string, OpenstackSession>()
  const sessionOf = (environment: Environment): OpenstackSession => {
    const user = JSON.stringify(environment)
    const known = sessions.get(user)
    if (known !== undefined) return known
    const client = { PATH: process.env.PATH, HOME: testDirectory(), PYTHONWARNINGS: 'ignore' }
    const session = openstackSessionIn(t, { ...client, ...environment })
    sessions.set(user, session)
    return session
  }
  const serve = async (socket: Socket) => {
    const [line] = (await once(createInterface({ input: socket }), 'line')) as [string]
    const { argv, environment } = JSON.parse(line) as Request
    socket.end(JSON.stringify(await sessionOf(environment).call(argv)))
  }
  const server = createServer(socket => {
    serve(socket).catch((error: unknown) => socket.destroy(error instanceof Error ? error : new Error(String(error))))
    // A shell that is killed does not wait for its answer.
    socket.on('error', error => 'code' in error || t.fail(`openstack: ${error.message}`))
  })
  server.listen(socketFile)
  await once(server, 'listening')
  t.teardown(() => server.close())
  writeFileSync(join(directory, 'openstack'), program(clientPython(), socketFile), { mode: 0o755 })
}
