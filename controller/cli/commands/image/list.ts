import type { Command } from '../../command.js'
import { print, table } from '../../terminal.js'
import { listImages } from './image-store.js'

const HEADING = ['tag', 'id', 'suite', 'haproxy', 'keepalived', 'kernel', 'agent', 'imported']

export const command: Command = {
  ignoresSettings: true,
  run: async stateDirectory => {
    const images = listImages(stateDirectory)
    if (images.length === 0) {
      print('There are no images. `npm run images` builds one, and `krater image import` takes it.')
      return
    }
    const rows = images.map(({ tag, manifest, importedAt }) => {
      if (manifest === null) return [tag, 'damaged, or of a newer version: import it again']
      const version = (name: string) => manifest.packages.find(found => found.name === name)?.version ?? '-'
      const { id, suite, kernel, agent } = manifest
      const time = importedAt.toISOString().slice(0, 16).replace('T', ' ')
      return [tag, id.slice(0, 12), suite, version('haproxy'), version('keepalived'), kernel, agent.version, time]
    })
    for (const line of table([HEADING, ...rows])) print(line)
  },
}
