import { readAgentBundle } from '../../../provider/amphora/agent/bundle.js'
import type { Command } from '../../command.js'
import { print, table } from '../../terminal.js'
import { agentBundle } from '../../wiring/drivers.js'
import { agentText, amphoraRows, imageText, lastHeartbeat } from './rows.js'
import { withRows } from './with-rows.js'

const HEADING = [
  'id',
  'status',
  'role',
  'address',
  'last heartbeat',
  'driver',
  'flavor',
  'zone',
  'image',
  'agent',
  'load balancer',
]

export const command: Command = {
  run: async directory => {
    const rows = await withRows(directory, (_instance, database) => amphoraRows(database))
    if (rows.length === 0) {
      print('There are no amphorae.')
      return
    }
    const bundle = readAgentBundle(agentBundle).sha256
    const lines = rows.map(row => [
      row.id,
      row.status,
      row.role ?? '-',
      row.address ?? '-',
      lastHeartbeat(row),
      row.driver ?? '-',
      row.flavor ?? '-',
      row.zone ?? '-',
      imageText(row),
      agentText(row, bundle),
      row.loadBalancerId === null
        ? '(in the warm pool)'
        : `${row.loadBalancerId} ${row.loadBalancerName ?? ''}`.trimEnd(),
    ])
    for (const line of table([HEADING, ...lines])) print(line)
  },
}
