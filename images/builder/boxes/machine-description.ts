/** What a description in the Open Virtualization Format says of a machine. */
export type DescribedMachine = {
  name: string
  processors: number
  memoryMebibytes: number
  /** The name of the disk's file, a VMDK for streams. */
  disk: string
  diskMebibytes: number
}

/** Numbers of CIM_ResourceAllocationSettingData. */
const TYPE = { processor: 3, memory: 4, ide: 5, ethernet: 10, disk: 17 }

type Item = Readonly<Record<string, string | number>>

/**
 * Describes a machine with one disk at an IDE controller and one network interface, for VirtualBox and its relatives, as
 * version 1 of the format (DSP0243).
 * @returns the text of an .ovf file
 */
export function machineDescription({
  name,
  processors,
  memoryMebibytes,
  disk,
  diskMebibytes,
}: DescribedMachine): string {
  const items: Item[] = [
    { Caption: `${processors} processors`, InstanceID: 1, ResourceType: TYPE.processor, VirtualQuantity: processors },
    {
      ...{ AllocationUnits: 'MegaBytes', Caption: `${memoryMebibytes} MB of memory`, InstanceID: 2 },
      ...{ ResourceType: TYPE.memory, VirtualQuantity: memoryMebibytes },
    },
    { Address: 0, Caption: 'ideController0', InstanceID: 3, ResourceSubType: 'PIIX4', ResourceType: TYPE.ide },
    {
      ...{ AddressOnParent: 0, Caption: 'disk1', HostResource: '/disk/vmdisk1', InstanceID: 4, Parent: 3 },
      ResourceType: TYPE.disk,
    },
    {
      ...{ AutomaticAllocation: 'true', Caption: 'network', Connection: 'NAT', InstanceID: 5 },
      ...{ ResourceSubType: 'virtio', ResourceType: TYPE.ethernet },
    },
  ]
  return `<?xml version="1.0"?>
<Envelope ovf:version="1.0" xml:lang="en-US" xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData" xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <References>
    <File ovf:href="${escaped(disk)}" ovf:id="file1"/>
  </References>
  <DiskSection>
    <Info>The disk of the machine</Info>
    <Disk ovf:capacity="${diskMebibytes * 1024 * 1024}" ovf:diskId="vmdisk1" ovf:fileRef="file1" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/>
  </DiskSection>
  <NetworkSection>
    <Info>The network of the machine</Info>
    <Network ovf:name="NAT">
      <Description>A network of the host</Description>
    </Network>
  </NetworkSection>
  <VirtualSystem ovf:id="${escaped(name)}">
    <Info>A virtual machine</Info>
    <OperatingSystemSection ovf:id="96">
      <Info>The operating system</Info>
      <Description>Debian_64</Description>
    </OperatingSystemSection>
    <VirtualHardwareSection>
      <Info>The hardware of the machine</Info>
      <System>
        <vssd:ElementName>Virtual hardware</vssd:ElementName>
        <vssd:InstanceID>0</vssd:InstanceID>
        <vssd:VirtualSystemIdentifier>${escaped(name)}</vssd:VirtualSystemIdentifier>
        <vssd:VirtualSystemType>virtualbox-2.2</vssd:VirtualSystemType>
      </System>
${items.map(itemText).join('')}    </VirtualHardwareSection>
  </VirtualSystem>
</Envelope>
`
}

/** The schema wants the elements in the order of their names, and each item to have a name. */
function itemText(item: Item): string {
  const elements = { ...item, ElementName: item.Caption ?? '' }
  const lines = Object.entries(elements)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `        <rasd:${name}>${escaped(String(value))}</rasd:${name}>\n`)
  return `      <Item>\n${lines.join('')}      </Item>\n`
}

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
