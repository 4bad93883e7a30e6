import { benchDatagramTraffic } from './datagram-traffic.js'

/** The program for a machine with IPVS: prints the table. */
process.stdout.write(`${await benchDatagramTraffic({ ipvs: true })}\n`)
process.exit()
