import { startMembers } from '../support/clients/steady-traffic.js'

// Members for clients of every kind, on `count` ports. Runs in its own network namespace.
const [firstPort, count] = process.argv.slice(1).map(Number)
await startMembers(firstPort ?? 0, count ?? 0)
process.stdout.write('listening\n')
