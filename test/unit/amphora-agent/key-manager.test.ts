import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import t from 'tap'
import { KeyManagerDown, openKeyManager } from '../../../amphora-agent/tls/key-manager.js'
import type { MaterialKind } from '../../../x509/material/load.js'

/** A key manager behind a gateway, both on this machine, whose answers mean nothing. */

let answer = ''
const server = createServer((request, response) => {
  if (request.method === 'POST') response.writeHead(201, { 'X-Subject-Token': 'a token' }).end('{}')
  else response.writeHead(200).end(answer)
})
server.on('connect', (_, client) => {
  client.write('HTTP/1.1 200 Connection established\r\n\r\n')
  const through = connect(port)
  for (const socket of [client, through]) socket.on('error', () => socket.destroy())
  client.pipe(through).pipe(client)
})
await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
const { port } = server.address() as AddressInfo
t.teardown(() => {
  server.closeAllConnections()
  server.close()
})

t.test('an answer that means nothing is no refusal: the key manager counts as away', async t => {
  const keyManager = openKeyManager({ amphoraId: randomUUID(), keyChannel: undefined })
  t.teardown(keyManager.close)
  const service = { url: `http://127.0.0.1:${port}`, ca: null, insecure: false }
  keyManager.lend({
    ...{ id: randomUUID(), secret: 'secret', scope: 'scope', seconds: 60 },
    ...{ gateway: { host: '127.0.0.1', port }, identity: service, keyManager: service },
  })
  const read = (kind: string, of: MaterialKind) =>
    keyManager.read(`http://keys.test/v1/${kind}/${randomUUID()}`, of).catch((error: unknown) => error)
  for (answer of ['<html>Back soon</html>', '[]', '', '{"content_types": 5}']) {
    t.ok((await read('containers', 'certificate')) instanceof KeyManagerDown, `container: ${answer}`)
    t.ok((await read('secrets', 'authority')) instanceof KeyManagerDown, `secret: ${answer}`)
  }
})
