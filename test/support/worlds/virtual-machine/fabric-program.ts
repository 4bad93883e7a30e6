import type { Attachment } from '../../../../controller/network/local/fabric.js'
import { Fabric } from '../../../../controller/network/local/fabric.js'
import type { ProviderNetwork } from '../../../../controller/network/local/uplinks/plan.js'
import { Uplinks } from '../../../../controller/network/local/uplinks/uplinks.js'
import type { PhysicalNetworks } from '../../../../controller/network/physical-networks.js'

/** What the fabric of a virtual machine has. Without it, the fabric is removed. */
export type FabricContents = {
  networks: readonly ProviderNetwork[]
  physicalNetworks: PhysicalNetworks
  attachments: readonly Attachment[]
}

const INSTANCE = 'abcde'

/** The program: makes or removes the fabric, and prints the networks that lead nowhere. */
async function main([contents]: string[]): Promise<void> {
  const fabric = new Fabric({ instance: INSTANCE })
  const uplinks = new Uplinks(fabric)
  if (contents === undefined) {
    await uplinks.remove()
    await fabric.remove()
    return
  }
  const { networks, physicalNetworks, attachments } = JSON.parse(contents) as FabricContents
  await fabric.ensure()
  const problems = await uplinks.ensure(async () => networks, physicalNetworks)
  for (const attachment of attachments) await fabric.attach(attachment)
  console.log(JSON.stringify(problems))
}

await main(process.argv.slice(2))
