import { resolve } from 'node:path'
import { Argument } from 'commander'
import type { Command } from '../../command.js'
import { requireRoot } from '../../host/checks.js'
import { print } from '../../terminal.js'
import { importImage } from './image-store.js'
import { requireTag, tagOption } from './tag.js'

export const command: Command = {
  arguments: [new Argument('[directory]', 'what `npm run images` has written').default('images/out')],
  options: [tagOption],
  ignoresSettings: true,
  run: async (stateDirectory, { directory, tag }) => {
    requireRoot()
    const name = requireTag(String(tag))
    const { manifest, isKnown } = await importImage(stateDirectory, resolve(String(directory)), name)
    const described = `${name} (${manifest.id.slice(0, 12)}, Debian ${manifest.suite}, agent ${manifest.agent.version})`
    if (isKnown) print(`The image ${described} was there already.`)
    else {
      print(`The image ${described} is there. New amphorae use it.`)
      print('`krater amphora upgrade` replaces those that run an earlier one.')
    }
  },
}
