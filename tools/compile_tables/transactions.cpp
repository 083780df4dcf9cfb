// A plug-in of Oclgrind that counts what the memory accesses of each kernel cost a GPU.
//
// Work-items that follow each other in a work-group form warps of 32. An access of a warp is what its work-items do with
// the same instruction when each executes it for the n-th time.
//
// Global memory: the 32-byte sectors that an access touches, against the number that its distinct bytes would fill.
// Local memory: 32 banks of 4 bytes. Accesses of 8 or 16 bytes are made by 16 or 8 work-items at a time. The cost of each
// part is the largest number of distinct words in one bank; the ideal is 1.
//
// Environment: OCLGRIND_TRANSACTIONS names the file that gets a line for each instruction of each kernel:
//     kernel  line  "global" or "local"  "load" or "store"  accesses  cost  ideal
// OCLGRIND_TRANSACTIONS_GROUPS is the number of work-groups of a launch that are looked at, from its first on (default 64).

#include "oclgrind/Context.h"
#include "oclgrind/Kernel.h"
#include "oclgrind/KernelInvocation.h"
#include "oclgrind/Memory.h"
#include "oclgrind/Plugin.h"
#include "oclgrind/WorkGroup.h"
#include "oclgrind/WorkItem.h"

#include <llvm/IR/DebugLoc.h>
#include <llvm/IR/Instruction.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace
{
constexpr size_t WARP = 32, SECTOR = 32, BANKS = 32, WORD = 4;
constexpr unsigned GLOBAL = 1, LOCAL = 3; // address spaces of SPIR

struct Touched // by one work-item
{
  size_t item, address, size;
};

struct Count
{
  size_t accesses = 0, cost = 0, ideal = 0;
};

using Instruction = const llvm::Instruction*;
using Place = std::tuple<std::string, unsigned, bool, bool>; // kernel, line, whether global, whether a store

size_t up(size_t count, size_t unit)
{
  return (count + unit - 1) / unit;
}

void addSectors(const std::vector<Touched>& access, Count& count)
{
  std::set<size_t> sectors, words;
  for (const auto& t : access)
    for (size_t byte = t.address; byte < t.address + t.size; byte++)
    {
      sectors.insert(byte / SECTOR);
      words.insert(byte);
    }
  count.accesses++;
  count.cost += sectors.size();
  count.ideal += up(words.size(), SECTOR);
}

void addBanks(const std::vector<Touched>& access, Count& count)
{
  size_t widest = WORD;
  for (const auto& t : access)
    widest = std::max(widest, t.size);
  const size_t together = std::max<size_t>(1, WARP * WORD / widest);
  std::map<size_t, std::map<size_t, std::set<size_t>>> parts; // part of the warp, bank, words
  for (const auto& t : access)
    for (size_t word = t.address / WORD; word <= (t.address + t.size - 1) / WORD; word++)
      parts[t.item % WARP / together][word % BANKS].insert(word);
  count.accesses++;
  for (const auto& part : parts)
  {
    size_t most = 0;
    for (const auto& bank : part.second)
      most = std::max(most, bank.second.size());
    count.cost += most;
    count.ideal++;
  }
}

class Transactions : public oclgrind::Plugin
{
public:
  explicit Transactions(const oclgrind::Context* context) : Plugin(context)
  {
    const char* groups = std::getenv("OCLGRIND_TRANSACTIONS_GROUPS");
    m_most = groups ? std::strtoul(groups, nullptr, 10) : 64;
  }

  ~Transactions() override
  {
    const char* name = std::getenv("OCLGRIND_TRANSACTIONS");
    std::ofstream file(name ? name : "transactions.txt", std::ios::app);
    for (const auto& entry : m_counts)
    {
      const auto& [kernel, line, isGlobal, isStore] = entry.first;
      const Count& c = entry.second;
      file << kernel << '\t' << line << '\t' << (isGlobal ? "global" : "local") << '\t' << (isStore ? "store" : "load")
           << '\t' << c.accesses << '\t' << c.cost << '\t' << c.ideal << '\n';
    }
  }

  void kernelBegin(const oclgrind::KernelInvocation* invocation) override
  {
    m_kernel = invocation->getKernel()->getName();
    m_groups = 0;
  }

  void workGroupBegin(const oclgrind::WorkGroup*) override
  {
    m_seen.clear();
    m_accesses.clear();
    m_groups++;
  }

  void workGroupComplete(const oclgrind::WorkGroup*) override
  {
    for (const auto& entry : m_accesses)
    {
      const auto& [instruction, isGlobal, isStore, warp, time] = entry.first;
      const llvm::DebugLoc& where = instruction->getDebugLoc();
      Count& count = m_counts[Place(m_kernel, where ? where.getLine() : 0, isGlobal, isStore)];
      (isGlobal ? addSectors : addBanks)(entry.second, count);
    }
    m_accesses.clear();
  }

  void memoryLoad(const oclgrind::Memory* memory, const oclgrind::WorkItem* item, size_t address, size_t size) override
  {
    note(memory, item, address, size, false);
  }

  void memoryStore(const oclgrind::Memory* memory, const oclgrind::WorkItem* item, size_t address, size_t size,
                   const uint8_t*) override
  {
    note(memory, item, address, size, true);
  }

  bool isThreadSafe() const override
  {
    return false;
  }

private:
  void note(const oclgrind::Memory* memory, const oclgrind::WorkItem* item, size_t address, size_t size, bool isStore)
  {
    const unsigned space = memory->getAddressSpace();
    if (m_groups > m_most || (space != GLOBAL && space != LOCAL))
      return;
    const auto local = item->getLocalID(), extent = item->getWorkGroup()->getGroupSize();
    const size_t number = local.x + extent.x * (local.y + extent.y * local.z);
    const Instruction instruction = item->getCurrentInstruction();
    const size_t time = m_seen[std::make_pair(instruction, number)]++;
    m_accesses[std::make_tuple(instruction, space == GLOBAL, isStore, number / WARP, time)].push_back(
      {number, address, size});
  }

  std::string m_kernel;
  size_t m_groups = 0, m_most = 0;
  std::map<std::pair<Instruction, size_t>, size_t> m_seen;
  std::map<std::tuple<Instruction, bool, bool, size_t, size_t>, std::vector<Touched>> m_accesses;
  std::map<Place, Count> m_counts;
};

Transactions* plugin = nullptr;
} // namespace

extern "C" void initializePlugins(oclgrind::Context* context);
extern "C" void releasePlugins(oclgrind::Context* context);

void initializePlugins(oclgrind::Context* context)
{
  if (!plugin)
    context->registerPlugin(plugin = new Transactions(context));
}

void releasePlugins(oclgrind::Context* context)
{
  context->unregisterPlugin(plugin);
  delete plugin;
  plugin = nullptr;
}
