import type { Command } from '../../command.js'
import { print, table } from '../../terminal.js'
import { amphoraRows, imageText, lastHeartbeat } from './rows.js'
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
  'load balancer',
]

export const command: Command = {
  run: async directory => {
    const rows = await withRows(directory, (_instance, database) => amphoraRows(database))
    if (rows.length === 0) {
      print('There are no amphorae.')
      return
    }
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
      row.loadBalancerId === null
        ? '(in the warm pool)'
        : `${row.loadBalancerId} ${row.loadBalancerName ?? ''}`.trimEnd(),
    ])
    for (const line of table([HEADING, ...lines])) print(line)
  },
}
