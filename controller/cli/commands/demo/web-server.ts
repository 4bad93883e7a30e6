import { createServer } from 'node:http'

// A member of the demo: answers every request with its name. Arguments: name, port.
const [name = 'web', port = '8080'] = process.argv.slice(2)

const server = createServer((_request, response) => {
  response.writeHead(200, { 'Content-Type': 'text/plain' })
  response.end(`${name}\n`)
})
server.keepAliveTimeout = 65_000
server.listen(Number(port))
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => process.exit(0))
