import { join } from 'node:path'

/** Where the parts of an OVN of ours have their files. */
export type OvnLayout = {
  directory: string
  /** Databases by name: those of the switch, northbound and southbound. */
  databases: Readonly<Record<DatabaseName, { file: string; schema: string; socket: string }>>
  file: (kind: 'pid' | 'log', daemon: string) => string
}

export type DatabaseName = 'switch' | 'northbound' | 'southbound'

const SCHEMAS: Readonly<Record<DatabaseName, string>> = {
  switch: '/usr/share/openvswitch/vswitch.ovsschema',
  northbound: '/usr/share/ovn/ovn-nb.ovsschema',
  southbound: '/usr/share/ovn/ovn-sb.ovsschema',
}

/** @param stateDirectory of the installation */
export function ovnLayout(stateDirectory: string): OvnLayout {
  const directory = join(stateDirectory, 'ovn')
  const filesOf = (name: DatabaseName) => ({
    file: join(directory, `${name}.db`),
    schema: SCHEMAS[name],
    socket: join(directory, `${name}.socket`),
  })
  return {
    directory,
    databases: {
      switch: filesOf('switch'),
      northbound: filesOf('northbound'),
      southbound: filesOf('southbound'),
    },
    file: (kind, daemon) => join(directory, `${daemon}.${kind}`),
  }
}
